// Cumulative operations along an axis.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/linear_scan.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Scans the elements along an axis: `step(state, x)` with the state from `first`.
Reference scanned(size_t axis, double first, double (*step)(double, double)) {
  return [=](const std::vector<Array>& in) {
    Array states = in[0];
    size_t before = 1, at = 0;  // elements from one position of the axis to the next
    for (size_t i = axis + 1; i < in[0].shape.rank(); ++i)
      before *= static_cast<size_t>(in[0].shape.dims()[i]);
    each_index(in[0].shape, [&](const Index& to) {
      states.values[at] = step(to[axis] ? states.values[at - before] : first, in[0].values[at]);
      ++at;
    });
    return states;
  };
}
double plus(double a, double b) { return a + b; }
double times(double a, double b) { return a * b; }
double log_sum(double a, double b) {
  const double high = std::max(a, b);
  return std::isinf(high) ? high : high + std::log(std::exp(a - high) + std::exp(b - high));
}
double higher(double a, double b) { return std::max(a, b); }
double lower(double a, double b) { return std::min(a, b); }

struct Row {
  const char* name;
  esp::Variable (*op)(const esp::Operand&, int64_t);
  double first;
  double (*step)(double, double);
  int roundings = 2;
};
const Row rows[] = {
    {"cumsum", esp::cumsum, 0, plus},
    {"cumprod", esp::cumprod, 1, times, 8},
    {"logcumsumexp", esp::logcumsumexp, -inf, log_sum, 4},
    {"cummax", [](const esp::Operand& x, int64_t axis) { return esp::cummax(x, axis).values; }, -inf, higher},
    {"cummin", [](const esp::Operand& x, int64_t axis) { return esp::cummin(x, axis).values; }, inf, lower}};

}  // namespace

BOOST_AUTO_TEST_SUITE(scan)

BOOST_AUTO_TEST_CASE(along_every_axis) {
  for (const Row& row : rows)
    for (int64_t axis = 0; axis < 3; ++axis)
      check_op({.name = row.name,
                .op = [&](const Variables& x) { return row.op(x[0], axis == 1 ? -2 : axis); },
                .inputs = {numbers({3, 4, 2})},
                .reference = scanned(static_cast<size_t>(axis), row.first, row.step),
                .tolerance = 1e-12,
                .tolerance32 = 4e-6,
                .roundings = row.roundings});
}

BOOST_AUTO_TEST_CASE(one_element_long_rows_and_nothing) {
  for (const Row& row : rows) {
    for (const esp::Shape& shape : {esp::Shape{1}, esp::Shape{0}, esp::Shape{2, 0}, esp::Shape{0, 3}})
      check_op({.name = row.name,
                .op = [&](const Variables& x) { return row.op(x[0], -1); },
                .inputs = {numbers(shape)},
                .reference = scanned(shape.rank() - 1, row.first, row.step),
                .order = shape.elements() ? 2 : 0,
                .tolerance32 = 4e-6,
                .roundings = row.roundings});
    // Longer than a block of a GPU, and with several columns.
    for (const auto& [shape, axis] : {std::pair<esp::Shape, int64_t>{{2, 20'000}, 1}, {{700, 3}, 0}})
      check_op({.name = row.name,
                .op = [&, a = axis](const Variables& x) { return row.op(x[0], a); },
                .inputs = {numbers(shape, 0.999, 1.001)},
                .reference = scanned(static_cast<size_t>(axis), row.first, row.step),
                .order = 0,
                .tolerance = 1e-10,
                .tolerance32 = 1e-4,
                .roundings = 0});
  }
}

BOOST_AUTO_TEST_CASE(products_with_zeros_have_gradients_of_all_orders) {
  esp::Tensor x = numbers({3, 5});
  x.at<double>({0, 2}) = x.at<double>({1, 0}) = x.at<double>({1, 3}) = x.at<double>({2, 4}) = 0;
  check_op({.name = "cumprod",
            .op = [](const Variables& v) { return esp::cumprod(v[0]); },
            .inputs = {x},
            .reference = scanned(1, 1, times),
            .tolerance32 = 4e-6,
            .roundings = 8});
}

BOOST_AUTO_TEST_CASE(recurrences_and_shifts) {
  for (const bool reverse : {false, true}) {
    for (const bool lagged : {false, true})
      check_op({.name = "linear_scan",
                .op =
                    [=](const Variables& x) {
                      return esp::linear_scan(x[0], x[1], {reverse, lagged});
                    },
                .inputs = {numbers({2, 5}), numbers({2, 5}, -1, 1, 3)},
                .reference =
                    [=](const std::vector<Array>& in) {
                      return Array({2, 5}, [&](const Index& to) {
                        double y = 0;
                        for (int64_t k = reverse ? 4 : 0;; k += reverse ? -1 : 1) {
                          const int64_t at = lagged ? (reverse ? k + 1 : k - 1) : k;
                          y = in[1]({to[0], k}) + (at < 0 || at > 4 ? 0 : in[0]({to[0], at})) * y;
                          if (k == to[1]) return y;
                        }
                      });
                    },
                .tolerance32 = 1e-5,
                .roundings = 8});
    check_op({.name = "shift_by_one",
              .op = [=](const Variables& x) { return esp::shift_by_one(x[0], reverse, 3); },
              .inputs = {numbers({2, 4})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    return Array({2, 4}, [&](const Index& to) {
                      const int64_t from = to[1] + (reverse ? 1 : -1);
                      return from < 0 || from > 3 ? 3.0 : in[0]({to[0], from});
                    });
                  }});
  }
  check_op({.name = "cumprod_backwards",
            .op = [](const Variables& x) { return esp::cumprod_backwards(x[0], 0); },
            .inputs = {numbers({4, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({4, 2}, [&](const Index& to) {
                    double product = 1;
                    for (int64_t k = to[0]; k < 4; ++k) product *= in[0]({k, to[1]});
                    return product;
                  });
                },
            .tolerance32 = 4e-6,
            .roundings = 8});
}

BOOST_AUTO_TEST_CASE(positions_of_extremes) {
  const esp::Tensor x = esp::tensor({{1.0, 3.0, 3.0, 2.0}, {-0.0, 0.0, -1.0, -1.0}}, esp::float64);
  for (const esp::Tensor& same : {x, laid_out_in_reverse(x), sliced_from_larger(x)}) {
    BOOST_TEST(difference(esp::tensor({{0, 1, 1, 1}, {0, 0, 0, 0}}), esp::cummax(same).indices.value()) == 0);
    BOOST_TEST(difference(esp::tensor({{0, 0, 0, 0}, {0, 0, 2, 2}}), esp::cummin(same).indices.value()) == 0);
    BOOST_TEST(difference(esp::tensor({{0, 0, 0, 0}, {1, 1, 1, 1}}), esp::cummin(same, 0).indices.value()) ==
               0);
  }
  const esp::Tensor some = esp::tensor({1.0, not_a_number, 5.0, not_a_number}, esp::float64);
  for (const auto& found : {esp::cummax(some), esp::cummin(some)}) {
    BOOST_TEST(difference(esp::tensor({0, 1, 1, 1}), found.indices.value()) == 0);
    BOOST_TEST(difference(esp::tensor({1.0, not_a_number, not_a_number, not_a_number}, esp::float64),
                          found.values.value()) == 0);
  }
  const esp::Variable v = esp::variable(x);
  BOOST_TEST(difference(esp::tensor({{1.0, 3.0, 0.0, 0.0}, {4.0, 0.0, 0.0, 0.0}}, esp::float64),
                        esp::cummax(v).values.gradient(v).value()) == 0);
}

BOOST_AUTO_TEST_CASE(infinite_and_large_elements) {
  const esp::Variable x = esp::variable(esp::tensor({-inf, -inf, 1000.0, 1000.0, -1000.0}, esp::float64));
  const esp::Variable y = esp::logcumsumexp(x);
  const double two = 1000 + std::log(2.0);
  BOOST_TEST(difference(esp::tensor({-inf, -inf, 1000.0, two, two}, esp::float64), y.value()) < 1e-15);
  const esp::Tensor slope = esp::slice(y, 0, 2, 5).gradient(x).value();
  BOOST_TEST(difference(esp::tensor({0.0, 0.0, 2.0, 1.0, 0.0}, esp::float64), slope) < 1e-13);
  BOOST_TEST(difference(esp::tensor({0.0, inf, inf}, esp::float64),
                        esp::logcumsumexp(esp::tensor({0.0, inf, 1.0}, esp::float64)).value()) == 0);
  BOOST_TEST(difference(esp::tensor({0.0, not_a_number, not_a_number}, esp::float64),
                        esp::logcumsumexp(esp::tensor({0.0, not_a_number, 1.0}, esp::float64)).value()) == 0);
  // A rise by more than the exponents of float64 have.
  BOOST_TEST(difference(esp::tensor({-2000.0, 0.0}, esp::float64),
                        esp::logcumsumexp(esp::tensor({-2000.0, 0.0}, esp::float64)).value()) == 0);
  BOOST_TEST(difference(esp::tensor({1.0, not_a_number, not_a_number}, esp::float64),
                        esp::cumsum(esp::tensor({1.0, not_a_number, 1.0}, esp::float64)).value()) == 0);
}

BOOST_AUTO_TEST_CASE(integers_wrap_around) {
  BOOST_TEST(difference(esp::tensor({1, 3, 6}), esp::cumsum(esp::tensor({1, 2, 3})).value()) == 0);
  BOOST_TEST(difference(esp::tensor({1, 2, 6}), esp::cumprod(esp::tensor({1, 2, 3})).value()) == 0);
  const esp::Tensor large = esp::cumsum(esp::tensor({INT64_MAX, int64_t{1}})).value();
  BOOST_TEST(large.at<int64_t>({1}) == INT64_MIN);
  BOOST_TEST(difference(esp::tensor({3, 2, 2}), esp::cummin(esp::tensor({3, 2, 5})).values.value()) == 0);
}

BOOST_AUTO_TEST_CASE(sums_are_exact_to_rounding_on_any_number_of_threads) {
  constexpr int64_t n = 13 * 77'003;
  esp::Tensor x({n}, esp::float32);
  esp::fill_uniform(esp::RandomStream{1, 1}, x.data<float>(), n, -1.0, 1.0);
  esp::Tensor exact({n}, esp::float64);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) exact.at<double>({i}) = sum += static_cast<double>(x.at<float>({i}));
  const int before = esp::num_threads();
  std::vector<esp::Tensor> results;
  for (const int threads : {1, 3}) {
    esp::set_num_threads(threads);
    results.push_back(esp::cumsum(x).value());
    BOOST_TEST(difference(exact, results.back()) < 2e-7);
    results.push_back(esp::cumsum(x.reshape({-1, 13}), 0).value());
    results.push_back(esp::cumprod(x.reshape({13, -1}), 0).value());
    results.push_back(esp::logcumsumexp(x.reshape({13, -1})).value());
    results.push_back(esp::cummax(x.reshape({13, -1})).values.value());
  }
  esp::set_num_threads(before);
  for (size_t i = 0; i < 5; ++i) BOOST_TEST(difference(results[i], results[i + 5]) == 0);
}

BOOST_AUTO_TEST_CASE(short_last_batches_have_plans_of_their_own) {
  const esp::Variable x = esp::placeholder("x", {4, 3}, esp::float64);
  for (const Row& row : rows) {
    const esp::Executor executor = row.op(x, 0).get_executor({.mode = esp::Mode::inference});
    for (const int64_t size : {4, 2, 1}) {
      const esp::Tensor batch = numbers({size, 3});
      BOOST_TEST(difference(row.op(batch, 0).value(), executor.run({{"x", batch}})) < 1e-15);
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_and_line) {
  const esp::Variable x = esp::ones({2, 3}), flags = esp::tensor({true, false});
  for (const Row& row : rows) {
    BOOST_CHECK_EXCEPTION(row.op(x, 2), esp::ShapeError, says({row.name, "axis 2", here()}));
    BOOST_CHECK_EXCEPTION(row.op(1.0, 0), esp::ShapeError, says({row.name, "scalar", here()}));
    BOOST_CHECK_EXCEPTION(row.op(flags, 0), esp::TypeError, says({row.name, "bool", here()}));
  }
  BOOST_CHECK_EXCEPTION(esp::logcumsumexp(esp::tensor({1, 2})), esp::TypeError,
                        says({"logcumsumexp", "int64", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
