// Reductions along axes.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

using Fold = std::function<double(const std::vector<double>&)>;

double total(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}
double average(const std::vector<double>& v) { return total(v) / static_cast<double>(v.size()); }
double largest(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
double smallest(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }

/// Collects the elements of each output, then folds them.
Reference reference(const Fold& fold, const std::vector<bool>& gone, bool keep) {
  return [=](const std::vector<Array>& in) {
    const esp::Shape& from = in[0].shape;
    std::vector<int64_t> kept, shape;
    for (size_t i = 0; i < from.rank(); ++i) {
      kept.push_back(gone[i] ? 1 : from.dims()[i]);
      if (!gone[i] || keep) shape.push_back(kept.back());
    }
    std::vector<double> values;
    Array(kept, [&](const Index& to) {
      std::vector<double> group;
      each_index(from, [&](const Index& i) {
        for (size_t k = 0; k < i.size(); ++k)
          if (!gone[k] && i[k] != to[k]) return;
        group.push_back(in[0](i));
      });
      values.push_back(fold(group));
      return 0.0;
    });
    size_t next = 0;
    return Array(shape, [&](const Index&) { return values[next++]; });
  };
}

using Op = esp::Variable (*)(const esp::Operand&, const esp::Axes&, bool);
struct Row {
  const char* name;
  Op op;
  Fold fold;
  bool of_nothing = false;  // valid without elements
};
const Row rows[] = {{"sum", esp::sum, total, true},
                    {"mean", esp::mean, average},
                    {"max", esp::max, largest},
                    {"min", esp::min, smallest}};

}  // namespace

BOOST_AUTO_TEST_SUITE(reduce)

BOOST_AUTO_TEST_CASE(every_combination_of_axes) {
  const esp::Shape shape{2, 3, 1, 4};
  for (const Row& row : rows)
    for (unsigned set = 0; set < 16; ++set)
      for (bool keep : {false, true}) {
        esp::Dims axes;
        std::vector<bool> gone(4, set == 0);  // no axes: all
        for (int64_t i = 0; i < 4; ++i)
          if (set >> i & 1) {
            axes.insert(axes.size(), i % 2 ? i - 4 : i);  // some counted from the end
            gone[static_cast<size_t>(i)] = true;
          }
        check_op({.name = row.name,
                  .op = [&](const Variables& x) { return row.op(x[0], esp::Axes(axes), keep); },
                  .inputs = {numbers(shape)},
                  .reference = reference(row.fold, gone, keep),
                  .order = set % 4 == 1 ? 2 : 1,
                  .tolerance = 1e-13});
      }
}

BOOST_AUTO_TEST_CASE(rank_0_long_rows_and_nothing) {
  for (const Row& row : rows) {
    check_op({.name = row.name,
              .op = [&](const Variables& x) { return row.op(x[0], {}, false); },
              .inputs = {numbers({})},
              .reference = reference(row.fold, {}, false)});
    check_op({.name = row.name,
              .op = [&](const Variables& x) { return row.op(x[0], 1, false); },
              .inputs = {numbers({3, 101})},
              .reference = reference(row.fold, {false, true}, false)});
    check_op({.name = row.name,
              .op = [&](const Variables& x) { return row.op(x[0], 0, false); },
              .inputs = {numbers({101, 3})},
              .reference = reference(row.fold, {true, false}, false)});
    check_op({.name = row.name,  // an empty output
              .op = [&](const Variables& x) { return row.op(x[0], 1, false); },
              .inputs = {numbers({0, 3})},
              .reference = reference(row.fold, {false, true}, false)});
  }
  check_op({.name = "sum of nothing",
            .op = [](const Variables& x) { return esp::sum(x[0], 0); },
            .inputs = {numbers({0, 3})},
            .reference = reference(total, {true, false}, false)});
  BOOST_TEST(std::isnan(esp::mean(esp::zeros({0})).item()));
  for (auto op : {esp::max, esp::min})
    BOOST_CHECK_EXCEPTION(op(esp::zeros({3, 0}), 1, false), esp::ShapeError, says({"[3, 0]", here()}));
}

BOOST_AUTO_TEST_CASE(for_gradient_rules) {
  check_op({.name = "sum_to_like",
            .op = [](const Variables& x) { return esp::sum_to_like(x[0], x[1]); },
            .inputs = {numbers({4, 2, 3}), numbers({2, 1})},
            .reference =
                [](const std::vector<Array>& in) {
                  const Array sum = reference(total, {true, false, true}, false)(in);
                  return Array({2, 1}, [&](const Index& i) { return sum({i[0]}); });
                },
            .differentiable = {0}});
  check_op(
      {.name = "count_ratio",
       .op = [](const Variables& x) { return esp::count_ratio(x[0], x[1]); },
       .inputs = {numbers({2, 3}), numbers({4})},
       .reference = [](const std::vector<Array>&) { return Array({}, [](const Index&) { return 1.5; }); },
       .order = 0});
  const esp::Variable a = esp::ones({2, 3}), b = esp::ones({4});
  BOOST_CHECK_EXCEPTION(esp::sum_to_like(a, b), esp::ShapeError, says({"sum_to_like", "[2, 3]", "[4]"}));
}

BOOST_AUTO_TEST_CASE(large_sums_are_exact_to_rounding) {
  constexpr int64_t n = 10'000'000;
  esp::Tensor x({n}, esp::float32);
  esp::fill_uniform(esp::RandomStream{1, 1}, x.data<float>(), n, 0.0, 1.0);
  double exact = 0;
  for (float v : x.span<float>()) exact += static_cast<double>(v);
  BOOST_TEST(esp::sum(x).item() == exact, boost::test_tools::tolerance(2e-7));
  BOOST_TEST(esp::mean(x).item() == exact / n, boost::test_tools::tolerance(2e-7));
  // The same along axes, and with strides.
  BOOST_TEST(esp::sum(esp::sum(x.reshape({10, -1}), 1)).item() == exact, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(esp::sum(esp::transpose(x.reshape({1000, -1}))).item() == exact,
             boost::test_tools::tolerance(1e-5));
  const esp::Tensor tall = x.slice(0, 0, 3 * 100'000).reshape({-1, 3});  // long rows with strides
  BOOST_TEST(difference(esp::sum(esp::transpose(tall), 1).value(), esp::sum(tall, 0).value()) < 1e-5);
  BOOST_TEST(esp::sum(tall.slice(1, 1, 2)).item() == esp::sum(tall, 0).value().at<float>({1}),
             boost::test_tools::tolerance(1e-5));
  const esp::Tensor constant = esp::full({n}, 0.1);
  BOOST_TEST(esp::sum(constant).item() == n * static_cast<double>(0.1f), boost::test_tools::tolerance(1e-6));

  const esp::Tensor whole = esp::ones({100'000}, esp::int64);
  BOOST_TEST(esp::sum(whole).value().item<int64_t>() == 100'000);
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_no_bit) {
  const esp::Tensor x = numbers({300, 1000}).to(esp::float32);
  const int before = esp::num_threads();
  std::vector<esp::Tensor> results[2];
  for (int threads : {1, 3}) {
    esp::set_num_threads(threads);
    for (const Row& row : rows)
      for (const esp::Axes& axes : {esp::Axes(), esp::Axes(0), esp::Axes(1)})
        results[threads / 3].push_back(row.op(x, axes, false).value());
  }
  esp::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) BOOST_TEST(difference(results[0][i], results[1][i]) == 0);
}

BOOST_AUTO_TEST_CASE(integers_and_nan) {
  const esp::Tensor whole = esp::tensor({{INT64_MAX, int64_t{1}}, {int64_t{-5}, int64_t{2}}});
  BOOST_TEST(esp::sum(whole, 1).value().at<int64_t>({0}) == INT64_MIN);  // overflow wraps
  BOOST_TEST(esp::max(whole).value().item<int64_t>() == INT64_MAX);
  BOOST_TEST(esp::min(whole).value().item<int64_t>() == -5);
  BOOST_CHECK_EXCEPTION(esp::mean(whole), esp::TypeError, says({"mean", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::sum(esp::tensor(true)), esp::TypeError, says({"sum", "bool", here()}));

  for (int64_t n : {3, 100})
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      esp::Tensor x = esp::arange(n, esp::float32);
      x.at<float>({at}) = NAN;
      for (const Row& row : rows) BOOST_TEST(std::isnan(row.op(x, {}, false).item()), row.name);
    }
  const double inf = std::numeric_limits<double>::infinity();
  BOOST_TEST(esp::max(esp::tensor({-inf, -inf}, esp::float64)).item() == -inf);
  BOOST_TEST(esp::min(esp::tensor({inf, inf}, esp::float64)).item() == inf);
}

BOOST_AUTO_TEST_CASE(ties_share_their_gradient) {
  const esp::Variable x = esp::variable(esp::tensor({{2.0, 1.0, 2.0}, {3.0, 3.0, 3.0}}, esp::float64));
  BOOST_TEST(difference(esp::tensor({{0.5, 0.0, 0.5}, {1.0 / 3, 1.0 / 3, 1.0 / 3}}, esp::float64),
                        esp::max(x, 1).gradient(x).value()) < 1e-15);
  BOOST_TEST(difference(esp::tensor({{0.0, 0.0, 0.0}, {1.0 / 3, 1.0 / 3, 1.0 / 3}}, esp::float64),
                        esp::max(x).gradient(x).value()) < 1e-15);
  BOOST_TEST(difference(esp::tensor({{0.0, 1.0, 0.0}, {0.0, 0.0, 0.0}}, esp::float64),
                        esp::min(x).gradient(x).value()) < 1e-15);
}

BOOST_AUTO_TEST_CASE(argmax) {
  const esp::Tensor x = esp::tensor({{1.0f, 5.0f, 5.0f}, {7.0f, -1.0f, 2.0f}});
  for (const esp::Tensor& same : {x, laid_out_in_reverse(x), sliced_from_larger(x)}) {
    BOOST_TEST(difference(esp::tensor({1, 0}), esp::argmax(same).value()) == 0);  // the first of equals
    BOOST_TEST(difference(esp::tensor({1, 0, 0}), esp::argmax(same, 0).value()) == 0);
  }
  check_op({.name = "argmax",
            .op = [](const Variables& v) { return esp::argmax(v[0], 1); },
            .inputs = {numbers({2, 40, 3})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 3}, [&](const Index& to) {
                    int64_t best = 0;
                    for (int64_t k = 0; k < 40; ++k)
                      if (in[0]({to[0], k, to[1]}) > in[0]({to[0], best, to[1]})) best = k;
                    return static_cast<double>(best);
                  });
                },
            .order = 0});
  BOOST_TEST(esp::argmax(esp::tensor({1.0f, NAN, 9.0f, NAN})).item() == 1);  // NaN counts as largest
  BOOST_TEST(esp::argmax(esp::tensor({4, 9, 9})).item() == 1);
  BOOST_TEST(esp::argmax(esp::zeros({0, 3})).shape() == esp::Shape({0}));
  BOOST_CHECK_EXCEPTION(esp::argmax(esp::zeros({3, 0})), esp::ShapeError, says({"argmax", "[3, 0]", here()}));
  BOOST_CHECK_EXCEPTION(esp::argmax(1.0), esp::ShapeError, says({"axis", here()}));
  BOOST_CHECK_EXCEPTION(esp::argmax(x, 2), esp::ShapeError, says({"axis 2", here()}));
  const esp::Variable v = esp::variable(x);
  const esp::Variable y = esp::cast(esp::argmax(v), esp::float32) * esp::sum(v, 1);  // argmax has no gradient
  BOOST_TEST(difference(esp::tensor({{1.0f, 1.0f, 1.0f}, {0.0f, 0.0f, 0.0f}}), y.gradient(v).value()) == 0);
}

BOOST_AUTO_TEST_CASE(long_columns_lose_few_digits) {
  const esp::Tensor x = esp::rand({100000, 20});
  const esp::Variable wide = x.to(esp::float64), fed = esp::placeholder("x", {100000, 20});
  const auto off = [](const esp::Tensor& sums, const esp::Variable& exact) {
    return difference(sums.to(esp::float64), exact.value()) / Array(esp::max(exact).value()).values[0];
  };
  BOOST_TEST(off(esp::sum(esp::Variable(x), 0).value(), esp::sum(wide, 0)) < 1e-6);
  BOOST_TEST(off(esp::sum(fed, 0).get_executor().run({{"x", x}}), esp::sum(wide, 0)) < 1e-6);
  const esp::Tensor few = esp::rand({4, 1});
  const auto repeated = [](const esp::Tensor& x) { return esp::sum(esp::broadcast_to(x, {4, 5000})); };
  BOOST_TEST(off(repeated(few).value(), repeated(few.to(esp::float64))) < 1e-6);
  const auto squares = [](const esp::Variable& v) { return esp::sum(esp::square(v - 0.5), 0); };
  BOOST_TEST(off(squares(x).value(), squares(wide)) < 1e-6);
  BOOST_TEST(off(squares(fed).get_executor().run({{"x", x}}), squares(wide)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_axis_and_line) {
  const esp::Variable x = esp::ones({2, 3});
  for (const Row& row : rows) {
    BOOST_CHECK_EXCEPTION(row.op(x, 2, false), esp::ShapeError, says({row.name, "axis 2", here()}));
    BOOST_CHECK_EXCEPTION(row.op(x, -3, false), esp::ShapeError, says({row.name, "axis -3", here()}));
    BOOST_CHECK_EXCEPTION(row.op(x, {1, -1}, true), esp::ShapeError, says({row.name, "twice", here()}));
    BOOST_CHECK_EXCEPTION(row.op(1.0, 0, false), esp::ShapeError, says({row.name, "axis 0", here()}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
