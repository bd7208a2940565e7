// Order: sorting, selection by rank, and search in sorted elements.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

/// A NaN is larger than all numbers.
bool before(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

/// The positions of a row in its order.
std::vector<int64_t> ordered(const Array& x, Index at, size_t axis, bool descending) {
  std::vector<int64_t> positions;
  std::vector<double> row;
  for (at[axis] = 0; at[axis] < x.shape.dims()[axis]; ++at[axis]) {
    positions.push_back(at[axis]);
    row.push_back(x(at));
  }
  std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) {
    const double x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
    return descending ? before(y, x) : before(x, y);
  });
  return positions;
}

/// The elements at ranks `first`, `first + 1`, … of sorted rows, or their positions.
Reference ranked(size_t axis, bool descending, int64_t first, int64_t count, bool keep, bool positions) {
  return [=](const std::vector<Array>& in) {
    esp::Shape shape = in[0].shape;
    shape.dims()[axis] = count;
    if (!keep) shape.dims().erase(axis);
    std::map<Index, std::vector<int64_t>> orders;  // by the row
    return Array(shape, [&](const Index& to) {
      Index from = to;
      if (!keep) from.insert(from.begin() + static_cast<std::ptrdiff_t>(axis), 0);
      const int64_t rank = first + std::exchange(from[axis], 0);
      std::vector<int64_t>& order = orders[from];
      if (order.empty()) order = ordered(in[0], from, axis, descending);
      from[axis] = order[static_cast<size_t>(rank)];
      if (!positions) return in[0](from);
      if (!keep) {  // of equal elements the first
        const double x = in[0](from);
        for (Index earlier = from; earlier[axis]-- > 0;)
          if (in[0](earlier) == x) from = earlier;
      }
      return static_cast<double>(from[axis]);
    });
  };
}

struct Selection {
  const char* name;
  std::function<esp::ValuesAndIndices(const esp::Operand&, int64_t)> op;
  bool descending = false;
  int64_t first = 0, count = 0;  // no count: all
  bool keep = true;
};
const Selection selections[] = {
    {"sort", [](const esp::Operand& x, int64_t axis) { return esp::sort(x, axis); }},
    {"sort descending", [](const esp::Operand& x, int64_t axis) { return esp::sort(x, axis, true); }, true},
    {"topk", [](const esp::Operand& x, int64_t axis) { return esp::topk(x, 2, axis); }, true, 0, 2},
    {"topk smallest", [](const esp::Operand& x, int64_t axis) { return esp::topk(x, 3, axis, false); }, false,
     0, 3},
    {"kthvalue", [](const esp::Operand& x, int64_t axis) { return esp::kthvalue(x, 2, axis); }, false, 1, 1,
     false},
    {"median", [](const esp::Operand& x, int64_t axis) { return esp::median(x, axis); }, false, -1, 1,
     false}};

void check_selection(const Selection& s, const esp::Tensor& x, size_t axis, int order) {
  const int64_t n = x.shape().dims()[axis], first = s.first < 0 ? (n - 1) / 2 : s.first,
                count = s.count ? s.count : n;
  const auto signed_axis = static_cast<int64_t>(axis);
  check_op({.name = s.name,
            .op = [&](const Variables& v) { return s.op(v[0], signed_axis).values; },
            .inputs = {x},
            .reference = ranked(axis, s.descending, first, count, s.keep, false),
            .order = order});
  check_op({.name = s.name,
            .op = [&](const Variables& v) { return s.op(v[0], signed_axis).indices; },
            .inputs = {x},
            .reference = ranked(axis, s.descending, first, count, s.keep, true),
            .order = 0,
            .roundings = 0});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sorting)

BOOST_AUTO_TEST_CASE(along_every_axis) {
  for (const Selection& s : selections)
    for (const size_t axis : {0, 1, 2}) check_selection(s, numbers({3, 4, 5}), axis, 2);
}

BOOST_AUTO_TEST_CASE(rows_of_all_lengths) {
  for (const Selection& s : selections)
    for (const int64_t n : {3, 300, 5000}) check_selection(s, numbers({2, n}), 1, 0);
}

BOOST_AUTO_TEST_CASE(equal_elements_keep_their_order) {
  for (const Selection& s : selections)
    for (const int64_t n : {7, 600, 18'000}) {
      esp::Tensor x({1, n}, esp::float64);
      for (int64_t i = 0; i < n; ++i) x.at<double>({0, i}) = static_cast<double>(i * i % 5) - 2;
      check_selection(s, x, 1, 0);
      BOOST_TEST(difference(s.op(x, 1).indices.value(), s.op(x.to(esp::int32), 1).indices.value()) == 0);
      BOOST_TEST(difference(s.op(x, 1).indices.value(), s.op(x.to(esp::int64), 1).indices.value()) == 0);
    }
}

BOOST_AUTO_TEST_CASE(special_numbers) {
  const esp::Tensor x =
      esp::tensor({not_a_number, 1.0, -0.0, inf, 0.0, -inf, not_a_number, -1.0}, esp::float64);
  for (const auto dtype : {esp::float64, esp::float32, esp::float16, esp::bfloat16}) {
    const esp::Tensor y = x.to(dtype);
    const auto up = esp::sort(y), down = esp::sort(y, 0, true);
    BOOST_TEST(difference(esp::tensor({5, 7, 2, 4, 1, 3, 0, 6}), up.indices.value()) == 0);
    BOOST_TEST(difference(esp::tensor({0, 6, 3, 1, 2, 4, 7, 5}), down.indices.value()) == 0);
    BOOST_TEST(std::signbit(up.values.value().to(esp::float64).at<double>({2})));
    BOOST_TEST(!std::signbit(up.values.value().to(esp::float64).at<double>({3})));
    BOOST_TEST(difference(esp::tensor({0, 6, 3}), esp::topk(y, 3).indices.value()) == 0);
    BOOST_TEST(esp::kthvalue(y, 3).indices.item() == 2);
    BOOST_TEST(esp::kthvalue(y, 4).indices.item() == 2);  // of equal elements the first
    BOOST_TEST(esp::kthvalue(y, 8).indices.item() == 0);
    BOOST_TEST(std::isnan(esp::median(y, 0).values.item()));
    BOOST_TEST(esp::median(y, 0).indices.item() == 0);
    BOOST_TEST(std::isnan(esp::median(y).item()));
  }
  BOOST_TEST(difference(esp::tensor({2, 0, 1}),
                        esp::argsort(esp::tensor({int64_t{5}, INT64_MAX, INT64_MIN})).value()) == 0);
  BOOST_TEST(difference(esp::tensor({1, 0, 2}), esp::argsort(esp::tensor({true, false, true})).value()) == 0);
  BOOST_TEST(esp::median(esp::tensor({{4, 1}, {3, 2}})).item() == 2);
  BOOST_TEST(esp::median(esp::tensor({{4, 1}, {3, 2}}), 1, true).values.shape() == esp::Shape({2, 1}));
  BOOST_TEST(esp::median(5.0).item() == 5);
}

BOOST_AUTO_TEST_CASE(a_nan_anywhere_is_the_median) {
  for (const int64_t n : {9, 1024, 1025, 5000})
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      esp::Tensor x = numbers({n});
      x.at<double>({at}) = not_a_number;
      for (const auto dtype : {esp::float64, esp::float32}) {
        const auto found = esp::median(x.to(dtype), 0);
        BOOST_TEST(std::isnan(found.values.item()), at << " of " << n);
        BOOST_TEST(found.indices.item() == static_cast<double>(at));
      }
    }
}

BOOST_AUTO_TEST_CASE(of_nothing) {
  const esp::Tensor none = esp::zeros({3, 0}), rows = esp::zeros({0, 3});
  BOOST_TEST(esp::sort(none).values.shape() == esp::Shape({3, 0}));
  BOOST_TEST(esp::topk(none, 0).indices.shape() == esp::Shape({3, 0}));
  BOOST_TEST(esp::topk(rows, 2).values.shape() == esp::Shape({0, 2}));
  BOOST_TEST(esp::median(rows, 1).values.shape() == esp::Shape({0}));
  BOOST_CHECK_EXCEPTION(esp::median(none, 1), esp::ShapeError, says({"median", "empty", "[3, 0]", here()}));
  BOOST_CHECK_EXCEPTION(esp::median(none), esp::ShapeError, says({"median", "empty", here()}));
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_nothing) {
  const int before = esp::num_threads();
  const esp::Tensor row = numbers({700'000}).to(esp::float32), table = numbers({50, 3000});
  std::vector<esp::Tensor> results;
  for (const int threads : {1, 4}) {
    esp::set_num_threads(threads);
    for (const esp::Tensor& x : {row, row.to(esp::float64), table})
      for (const Selection& s : selections) results.push_back(s.op(x, -1).indices.value());
  }
  esp::set_num_threads(before);
  const size_t half = results.size() / 2;
  for (size_t i = 0; i < half; ++i) BOOST_TEST(difference(results[i], results[half + i]) == 0);
  const esp::Tensor sorted = esp::sort(row).values.value();
  BOOST_TEST(std::is_sorted(sorted.span<float>().begin(), sorted.span<float>().end()));
}

BOOST_AUTO_TEST_CASE(search) {
  for (const bool right : {false, true}) {
    const auto place = [=](const Array& rows, const Index& row, double x) {
      int64_t n = 0;
      Index at = row;
      for (at.back() = 0; at.back() < rows.shape[-1]; ++at.back())
        n += right ? !before(x, rows(at)) : before(rows(at), x);
      return static_cast<double>(n);
    };
    esp::Tensor sorted = esp::sort(numbers({3, 6})).values.value();
    check_op({.name = "searchsorted in one row",
              .op = [=](const Variables& v) { return esp::searchsorted(v[0], v[1], right); },
              .inputs = {esp::tensor({-1.0, 0.0, 0.0, 0.5, 1.0}, esp::float64),
                         esp::tensor({{0.0, 2.0, -3.0}, {1.0, 0.25, 0.5}}, esp::float64)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array({2, 3}, [&](const Index& i) { return place(in[0], {0}, in[1](i)); });
                  },
              .order = 0,
              .roundings = 0});
    check_op({.name = "searchsorted",
              .op = [=](const Variables& v) { return esp::searchsorted(v[0], v[1], right); },
              .inputs = {sorted, numbers({3, 4}, -2, 2, 5)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array({3, 4}, [&](const Index& i) { return place(in[0], {i[0], 0}, in[1](i)); });
                  },
              .order = 0,
              .roundings = 0});
  }
  const esp::Tensor rows = esp::tensor({1.0, 2.0, not_a_number}, esp::float64);
  for (const int64_t count : {2, 40}) {  // fewer values than sorted elements, and more
    const esp::Tensor some = numbers({count}, -2, 2, 8), ascending = esp::sort(numbers({20})).values.value();
    const esp::Tensor places = esp::searchsorted(ascending, some).value();
    for (int64_t i = 0; i < count; ++i) {
      const auto list = ascending.span<double>();
      BOOST_TEST(places.at<int64_t>({i}) ==
                 std::lower_bound(list.begin(), list.end(), some.at<double>({i})) - list.begin());
    }
  }
  BOOST_TEST(esp::searchsorted(rows, esp::tensor({not_a_number}, esp::float64)).item() == 2);
  BOOST_TEST(esp::searchsorted(rows, 1.5).item() == 1);
  BOOST_TEST(esp::searchsorted(esp::tensor({1, 2, 3}), 3, true).item() == 3);
  BOOST_TEST(esp::searchsorted(esp::zeros({0}), 1.0).item() == 0);
  BOOST_CHECK_EXCEPTION(esp::searchsorted(rows, esp::tensor({1})), esp::TypeError,
                        says({"searchsorted", here()}));
  BOOST_CHECK_EXCEPTION(esp::searchsorted(esp::ones({2, 3}), esp::ones({3, 3})), esp::ShapeError,
                        says({"searchsorted", "[2, 3]", "[3, 3]", here()}));
}

BOOST_AUTO_TEST_CASE(batches_of_other_sizes_have_plans_of_their_own) {
  const esp::Variable x = esp::placeholder("x", {6, 4}, esp::float64);
  for (const Selection& s : selections)
    for (const int64_t axis : {0, 1}) {
      const esp::Executor executor = s.op(x, axis).values.get_executor({.mode = esp::Mode::inference});
      for (const int64_t size : {6, 3}) {
        const esp::Tensor batch = numbers({size, 4});
        BOOST_TEST(difference(s.op(batch, axis).values.value(), executor.run({{"x", batch}})) == 0);
      }
    }
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_and_line) {
  const esp::Variable x = esp::ones({2, 4});
  BOOST_CHECK_EXCEPTION(esp::sort(x, 2), esp::ShapeError, says({"sort", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::sort(1.0), esp::ShapeError, says({"sort", "scalar", here()}));
  BOOST_CHECK_EXCEPTION(esp::topk(x, 5), esp::IndexError, says({"topk", "5", "4", here()}));
  BOOST_CHECK_EXCEPTION(esp::topk(x, -1), esp::IndexError, says({"topk", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::kthvalue(x, 0), esp::IndexError, says({"kthvalue", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::kthvalue(x, 3, 0), esp::IndexError, says({"kthvalue", "3", "2", here()}));
  BOOST_CHECK_EXCEPTION(esp::median(esp::tensor({true})), esp::TypeError, says({"median", "bool", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
