// Products, variances, norms and other reductions beyond sum, mean, max and min.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;
using GroupFold = std::function<double(const Values&)>;

/// Collects the elements of each output, then folds them. No axes are all.
Reference folded(const GroupFold& fold, std::vector<size_t> axes, bool keep) {
  return [=](const std::vector<Array>& in) {
    const esp::Shape& from = in[0].shape;
    const auto gone = [&](size_t i) {
      return axes.empty() || std::find(axes.begin(), axes.end(), i) != axes.end();
    };
    std::vector<int64_t> kept, shape;
    for (size_t i = 0; i < from.rank(); ++i) {
      kept.push_back(gone(i) ? 1 : from.dims()[i]);
      if (!gone(i) || keep) shape.push_back(kept.back());
    }
    Values values;
    each_index(kept, [&](const Index& to) {
      Values group;
      each_index(from, [&](const Index& i) {
        for (size_t k = 0; k < i.size(); ++k)
          if (!gone(k) && i[k] != to[k]) return;
        group.push_back(in[0](i));
      });
      values.push_back(fold(group));
    });
    size_t next = 0;
    return Array(shape, [&](const Index&) { return values[next++]; });
  };
}

double product(const Values& v) {
  double result = 1;
  for (const double x : v) result *= x;
  return result;
}
GroupFold variance(double correction) {
  return [=](const Values& v) {
    double mean = 0, sum = 0;
    for (const double x : v) mean += x / static_cast<double>(v.size());
    for (const double x : v) sum += (x - mean) * (x - mean);
    return sum / std::max(0.0, static_cast<double>(v.size()) - correction);
  };
}
GroupFold deviation(double correction) {
  return [=](const Values& v) { return std::sqrt(variance(correction)(v)); };
}
GroupFold norm_of(double p) {
  return [=](const Values& v) {
    double result = p == -inf ? inf : 0;
    for (const double x : v) {
      const double size = std::abs(x);
      if (p == inf)
        result = std::max(result, size);
      else if (p == -inf)
        result = std::min(result, size);
      else
        result += p == 0 ? x != 0 : std::pow(size, p);
    }
    return p == 0 || std::isinf(p) ? result : std::pow(result, 1 / p);
  };
}
double log_sum_exp(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += std::exp(x);
  return std::log(sum);
}

struct Row {
  const char* name;
  std::function<esp::Variable(const esp::Operand&, const esp::Axes&, bool)> op;
  GroupFold fold;
  int order = 2;
  int roundings = 1;
};
const Row rows[] = {
    {"prod", esp::prod, product, 2, 8},
    {"var",
     [](const esp::Operand& x, const esp::Axes& axes, bool keep) {
       return esp::var(x, axes, {.keep_dims = keep});
     },
     variance(1)},
    {"var of all",
     [](const esp::Operand& x, const esp::Axes& axes, bool keep) {
       return esp::var(x, axes, {.correction = 0, .keep_dims = keep});
     },
     variance(0)},
    {"std",
     [](const esp::Operand& x, const esp::Axes& axes, bool keep) {
       return esp::std(x, axes, {.keep_dims = keep});
     },
     deviation(1), 2, 4},
    {"norm",
     [](const esp::Operand& x, const esp::Axes& axes, bool keep) {
       return esp::norm(x, axes, {.keep_dims = keep});
     },
     norm_of(2)},
    {"logsumexp", esp::logsumexp, log_sum_exp},
    {"nansum", esp::nansum,
     [](const Values& v) {
       double sum = 0;
       for (const double x : v) sum += x;
       return sum;
     }},
    {"nanmean", esp::nanmean,
     [](const Values& v) {
       double sum = 0;
       for (const double x : v) sum += x;
       return sum / static_cast<double>(v.size());
     }},
    {"any", esp::any,
     [](const Values& v) { return std::any_of(v.begin(), v.end(), [](double x) { return x != 0; }); }, 0},
    {"all", esp::all,
     [](const Values& v) { return std::all_of(v.begin(), v.end(), [](double x) { return x != 0; }); }, 0},
    {"count_nonzero", esp::count_nonzero,
     [](const Values& v) { return std::count_if(v.begin(), v.end(), [](double x) { return x != 0; }); }, 0}};

}  // namespace

BOOST_AUTO_TEST_SUITE(statistics)

BOOST_AUTO_TEST_CASE(every_reduction_along_axes) {
  esp::Tensor x = numbers({2, 3, 4}), some_zeros = x.clone();
  for (const auto& at : {esp::Shape{0, 1, 2}, esp::Shape{1, 0, 0}, esp::Shape{1, 0, 1}})
    some_zeros.at<double>({at[0], at[1], at[2]}) = 0;
  const std::pair<esp::Axes, std::vector<size_t>> choices[] = {
      {{}, {}}, {0, {0}}, {-1, {2}}, {{0, -2}, {0, 1}}, {{2, 0}, {0, 2}}};
  for (const Row& row : rows)
    for (const auto& [axes, numbered] : choices)
      for (const bool keep : {false, true})
        check_op({.name = row.name,
                  .op = [&, a = axes](const Variables& v) { return row.op(v[0], a, keep); },
                  .inputs = {row.order ? x : some_zeros},
                  .reference = folded(row.fold, numbered, keep),
                  .order = keep ? row.order : std::min(row.order, 1),
                  .tolerance32 = 8e-6,
                  .roundings = row.roundings});
}

BOOST_AUTO_TEST_CASE(rank_0_and_long_rows) {
  for (const Row& row : rows) {
    const bool spread = std::string(row.name) == "var" || std::string(row.name) == "std";
    if (!spread)
      check_op({.name = row.name,
                .op = [&](const Variables& v) { return row.op(v[0], {}, false); },
                .inputs = {numbers({}, 0.5, 2)},
                .reference = folded(row.fold, {}, false),
                .order = 0,
                .roundings = row.roundings});
    for (const size_t axis : {0, 1})
      check_op({.name = row.name,
                .op = [&](const Variables& v) { return row.op(v[0], static_cast<int64_t>(axis), false); },
                .inputs = {axis ? numbers({3, 401}, 0.9, 1.1) : numbers({401, 3}, 0.9, 1.1)},
                .reference = folded(row.fold, {axis}, false),
                .order = 0,
                .tolerance32 = 3e-5,
                .roundings = 0});
  }
}

BOOST_AUTO_TEST_CASE(products_with_zeros_have_gradients_of_all_orders) {
  for (const int zeros : {1, 2, 3}) {
    esp::Tensor x = numbers({2, 4});
    for (int k = 0; k < zeros; ++k) x.at<double>({0, k}) = 0;
    for (const esp::Axes& axes : {esp::Axes(1), esp::Axes()})
      check_op({.name = "prod",
                .op = [&](const Variables& v) { return esp::prod(v[0], axes); },
                .inputs = {x},
                .reference = axes.list().empty() ? folded(product, {}, false) : folded(product, {1}, false),
                .tolerance32 = 4e-6,
                .roundings = 8});
  }
  BOOST_TEST(difference(esp::tensor({6, 20}), esp::prod(esp::tensor({{2, 3}, {4, 5}}), 1).value()) == 0);
  BOOST_TEST(esp::prod(esp::full({4000000}, 1.0)).item() == 1);
}

BOOST_AUTO_TEST_CASE(products_of_many_columns) {
  esp::Tensor x({2, 3, 1500}, esp::float64);
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t j = 0; j < 1500; ++j) {
      x.at<double>({o, 0, j}) = static_cast<double>(o + 1);
      x.at<double>({o, 1, j}) = static_cast<double>(j + 1);
      x.at<double>({o, 2, j}) = 2;
    }
  const esp::Tensor products = esp::prod(x, 1).value();
  int64_t right = 0;
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t j = 0; j < 1500; ++j)
      right += products.at<double>({o, j}) == 2 * static_cast<double>((o + 1) * (j + 1));
  BOOST_TEST(right == 3000);
}

BOOST_AUTO_TEST_CASE(covariances) {
  // Σ w (a − mean of a) (b − mean of b) / (Σ w − correction · `lost`) of rows a and b.
  const auto reference = [](double correction, const Values& w, double lost) {
    return [=](const std::vector<Array>& in) {
      const int64_t variables = in[0].shape[0], n = in[0].shape[1];
      double total = 0;
      for (const double each : w) total += each;
      const auto mean = [&](int64_t row) {
        double sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += w[static_cast<size_t>(k)] * in[0]({row, k});
        return sum / total;
      };
      return Array({variables, variables}, [&](const Index& i) {
        double sum = 0;
        for (int64_t k = 0; k < n; ++k)
          sum +=
              w[static_cast<size_t>(k)] * (in[0]({i[0], k}) - mean(i[0])) * (in[0]({i[1], k}) - mean(i[1]));
        return sum / (total - correction * lost);
      });
    };
  };
  const Values ones(5, 1.0), often{1, 2, 0, 3, 1}, much{0.5, 1, 2, 0.25, 1}, both{0.5, 2, 0, 0.75, 1};
  const esp::Tensor f = esp::tensor({1, 2, 0, 3, 1}), a = esp::tensor_from(much, {5});
  double total = 0, squares = 0;
  for (size_t k = 0; k < 5; ++k) total += both[k], squares += both[k] * much[k];
  struct Row {
    esp::CovOptions options;
    Reference reference;
  };
  for (const Row& row : {Row{{}, reference(1, ones, 1)}, Row{{.correction = 0}, reference(0, ones, 1)},
                         Row{{.fweights = f}, reference(1, often, 1)},
                         Row{{.fweights = f, .aweights = a}, reference(1, both, squares / total)}})
    check_op({.name = "cov",
              .op = [&](const Variables& v) { return esp::cov(v[0], row.options); },
              .inputs = {numbers({3, 5})},
              .reference = row.reference,
              .tolerance32 = 1e-5,
              .roundings = 4});
  const esp::Tensor x = numbers({7});
  BOOST_TEST(esp::cov(x).item() == esp::var(x).item(), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(std::isnan(esp::cov(esp::ones({2, 1})).value().at<float>({0, 0})));
  BOOST_CHECK_EXCEPTION(esp::cov(esp::ones({2, 3}), {.fweights = esp::tensor({1, 2})}), esp::ShapeError,
                        says({"cov", "[2]", "3 observations", here()}));
  BOOST_CHECK_EXCEPTION(esp::cov(esp::ones({2, 3}), {.fweights = esp::ones({3})}), esp::TypeError,
                        says({"cov: fweights", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::cov(esp::ones({2, 3, 4})), esp::ShapeError, says({"cov", "[2, 3, 4]", here()}));
}

BOOST_AUTO_TEST_CASE(norms) {
  for (const double p : {0.0, 0.5, 1.0, 1.5, 3.0, -1.0, inf, -inf})
    for (const bool keep : {false, true})
      check_op({.name = "norm",
                .op =
                    [=](const Variables& v) {
                      return esp::norm(v[0], {0, 2}, {.p = p, .keep_dims = keep});
                    },
                .inputs = {numbers({2, 3, 2}, 0.5, 2)},
                .reference = folded(norm_of(p), {0, 2}, keep),
                .order = p == 0 ? 0 : 2,
                .tolerance32 = 1e-5,
                .roundings = 4});
  const esp::Tensor half = esp::tensor({0.0, 0.0, 3.0, -4.0}, esp::float64);
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0}) {
    const esp::Variable x = esp::variable(half), none = esp::variable(esp::zeros({3}, esp::float64));
    const esp::Variable y = esp::norm(x, {}, {.p = p}), zero = esp::norm(none, {}, {.p = p});
    const esp::Tensor slope = y.gradient(x).value();
    BOOST_TEST(slope.at<double>({0}) == 0);
    BOOST_TEST(std::isfinite(slope.at<double>({2})));
    BOOST_TEST(zero.item() == 0);
    BOOST_TEST(difference(esp::zeros({3}, esp::float64), zero.gradient(none).value()) == 0);
  }
  BOOST_TEST(esp::norm(esp::zeros({0})).item() == 0);
  BOOST_TEST(std::isnan(esp::norm(esp::tensor({1.0, not_a_number}, esp::float64)).item()));
  BOOST_CHECK_EXCEPTION(esp::norm(esp::zeros({2, 0}), 1, {.p = inf}), esp::ShapeError,
                        says({"empty", here()}));
  BOOST_CHECK_EXCEPTION(esp::norm(esp::ones({2}), {}, {.p = not_a_number}), esp::Error,
                        says({"norm", here()}));
}

BOOST_AUTO_TEST_CASE(of_nothing_and_of_equal_elements) {
  BOOST_TEST(esp::prod(esp::zeros({0})).item() == 1);
  BOOST_TEST(difference(esp::ones({2}), esp::prod(esp::zeros({2, 0}), 1).value()) == 0);
  BOOST_TEST(esp::any(esp::zeros({0})).item() == 0);
  BOOST_TEST(esp::all(esp::zeros({0})).item() == 1);
  BOOST_TEST(esp::count_nonzero(esp::zeros({0, 3})).item() == 0);
  BOOST_TEST(esp::logsumexp(esp::zeros({0})).item() == -inf);
  BOOST_TEST(esp::logsumexp(esp::zeros({0, 3}), 1).shape() == esp::Shape({0}));
  BOOST_TEST(esp::nansum(esp::zeros({0})).item() == 0);
  BOOST_TEST(std::isnan(esp::var(esp::zeros({0})).item()));
  BOOST_TEST(std::isnan(esp::var(esp::ones({1})).item()));
  BOOST_TEST(esp::var(esp::ones({1}), {}, {.correction = 0}).item() == 0);
  const esp::Variable same = esp::variable(esp::ones({4}, esp::float64));
  const esp::Variable none = esp::std(same);
  BOOST_TEST(none.item() == 0);
  BOOST_TEST(difference(esp::zeros({4}, esp::float64), none.gradient(same).value()) == 0);
}

BOOST_AUTO_TEST_CASE(infinities_and_nan) {
  const esp::Tensor x =
      esp::tensor({{1.0, not_a_number, 3.0}, {not_a_number, not_a_number, not_a_number}}, esp::float64);
  BOOST_TEST(difference(esp::tensor({4.0, 0.0}, esp::float64), esp::nansum(x, 1).value()) == 0);
  BOOST_TEST(difference(esp::tensor({2.0, not_a_number}, esp::float64), esp::nanmean(x, 1).value()) == 0);
  BOOST_TEST(difference(esp::tensor({3, 3}), esp::count_nonzero(x, 1).value()) == 0);
  const esp::Variable v = esp::variable(x);
  BOOST_TEST(difference(esp::tensor({{1.0, 0.0, 1.0}, {0.0, 0.0, 0.0}}, esp::float64),
                        esp::nansum(v).gradient(v).value()) == 0);
  const auto total = [](std::initializer_list<double> list) {
    return esp::logsumexp(esp::tensor(list, esp::float64)).item();
  };
  BOOST_TEST(total({-inf, -inf}) == -inf);
  BOOST_TEST(total({inf, 1.0}) == inf);
  BOOST_TEST(total({1000.0, 1000.0}) == 1000 + std::log(2.0), boost::test_tools::tolerance(1e-14));
  BOOST_TEST(std::isnan(total({not_a_number, 1.0})));
  BOOST_TEST(esp::count_nonzero(esp::tensor({0.0, -0.0, 1.0}, esp::float64).to(esp::float16)).item() == 1);
  BOOST_TEST(esp::all(esp::tensor({true, true})).item() == 1);
  BOOST_TEST(esp::any(esp::tensor({false, false})).item() == 0);
  BOOST_TEST(esp::any(esp::tensor({0, 0, 4})).item() == 1);
}

BOOST_AUTO_TEST_CASE(argmin) {
  const esp::Tensor x = esp::tensor({{1.0f, -5.0f, -5.0f}, {7.0f, -1.0f, 2.0f}});
  for (const esp::Tensor& same : {x, laid_out_in_reverse(x), sliced_from_larger(x)}) {
    BOOST_TEST(difference(esp::tensor({1, 1}), esp::argmin(same).value()) == 0);  // the first of equals
    BOOST_TEST(difference(esp::tensor({0, 0, 0}), esp::argmin(same, 0).value()) == 0);
  }
  check_op({.name = "argmin",
            .op = [](const Variables& v) { return esp::argmin(v[0], 1); },
            .inputs = {numbers({2, 3000, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 2}, [&](const Index& to) {
                    int64_t best = 0;
                    for (int64_t k = 0; k < 3000; ++k)
                      if (in[0]({to[0], k, to[1]}) < in[0]({to[0], best, to[1]})) best = k;
                    return static_cast<double>(best);
                  });
                },
            .order = 0});
  for (const int64_t at : {0, 5, 1023, 1024, 2999}) {
    esp::Tensor row = numbers({3000});
    row.at<double>({at}) = -7;
    BOOST_TEST(esp::argmin(row).item() == static_cast<double>(at));
    row.at<double>({2999}) = not_a_number;  // a NaN counts as smallest, and as largest
    BOOST_TEST(esp::argmin(row).item() == 2999);
    BOOST_TEST(esp::argmax(row).item() == 2999);
    row.at<double>({at}) = not_a_number;
    BOOST_TEST(esp::argmin(row).item() == static_cast<double>(at));
  }
  check_op({.name = "argmin of many columns",
            .op = [](const Variables& v) { return esp::argmin(v[0], 0); },
            .inputs = {numbers({7, 600})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({600}, [&](const Index& to) {
                    int64_t best = 0;
                    for (int64_t k = 0; k < 7; ++k)
                      if (in[0]({k, to[0]}) < in[0]({best, to[0]})) best = k;
                    return static_cast<double>(best);
                  });
                },
            .order = 0});
  BOOST_TEST(esp::argmin(esp::tensor({int64_t{4}, INT64_MIN, INT64_MIN})).item() == 1);
  BOOST_CHECK_EXCEPTION(esp::argmin(esp::zeros({3, 0})), esp::ShapeError, says({"argmin", "[3, 0]", here()}));
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_no_bit) {
  const esp::Tensor x = numbers({300, 1000}, 0.9, 1.1).to(esp::float32);
  const int before = esp::num_threads();
  std::vector<esp::Tensor> results[2];
  for (const int threads : {1, 3}) {
    esp::set_num_threads(threads);
    for (const Row& row : rows)
      for (const esp::Axes& axes : {esp::Axes(), esp::Axes(0), esp::Axes(1)})
        results[threads / 3].push_back(row.op(x, axes, false).value());
  }
  esp::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) BOOST_TEST(difference(results[0][i], results[1][i]) == 0);
}

BOOST_AUTO_TEST_CASE(batches_of_other_sizes_have_plans_of_their_own) {
  const esp::Variable x = esp::placeholder("x", {4, 3}, esp::float64);
  for (const Row& row : rows)
    for (const int64_t axis : {0, 1}) {
      const esp::Executor executor = row.op(x, axis, false).get_executor({.mode = esp::Mode::inference});
      for (const int64_t size : {4, 2}) {
        const esp::Tensor batch = numbers({size, 3});
        BOOST_TEST(difference(row.op(batch, axis, false).value(), executor.run({{"x", batch}})) < 1e-13);
      }
    }
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_and_line) {
  const esp::Variable x = esp::ones({2, 3});
  for (const Row& row : rows) {
    const std::string name = std::string(row.name).substr(0, 3);
    if (name != "any" && name != "all")
      BOOST_CHECK_EXCEPTION(row.op(x, 2, false), esp::ShapeError, says({name, "axis 2"}));
    BOOST_CHECK_THROW(row.op(x, {0, -2}, false), esp::ShapeError);
  }
  BOOST_CHECK_EXCEPTION(esp::var(esp::tensor({1, 2})), esp::TypeError, says({"var", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::prod(esp::tensor({true})), esp::TypeError, says({"prod", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::std(x, 5), esp::ShapeError, says({"std", "axis 5", here()}));
  BOOST_CHECK_EXCEPTION(esp::logsumexp(x, 5), esp::ShapeError, says({"logsumexp", "axis 5", here()}));
}

BOOST_AUTO_TEST_CASE(norms_of_negative_order_at_zero) {
  const esp::Variable x = esp::variable(esp::tensor({0.0, 2.0, -3.0}, esp::float64));
  for (const double p : {-1.0, -2.0, -0.5}) {
    const esp::Variable y = esp::norm(x, {}, {.p = p});
    BOOST_TEST(y.value().item() == 0);
    BOOST_TEST(difference(y.gradient(x).value(), esp::zeros({3}, esp::float64)) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
