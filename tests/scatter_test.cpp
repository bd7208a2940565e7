// Elements chosen along one axis, and writing at indices.
#include "espalier/ops/functions/scatter.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// The index that chooses the element at `i` of what is chosen along `axis`.
int64_t index_at(const Array& indices, Index i, size_t axis, int64_t size) {
  for (size_t a = 0; a < i.size(); ++a)
    if (a != axis && indices.shape.dims()[a] == 1) i[a] = 0;
  const auto k = static_cast<int64_t>(indices(i));
  return k < 0 ? k + size : k;
}

/// How a value joins what is at its place.
using Join = double (*)(double held, double value);
double put(double, double value) { return value; }
double add(double held, double value) { return held + value; }
double larger(double held, double value) { return held > value ? held : value; }
double smaller(double held, double value) { return held < value ? held : value; }

/// What put_along_axis, add_along_axis, max_along_axis and min_along_axis compute, in plain loops.
Reference put_reference(size_t axis, Join join) {
  return [=](const std::vector<Array>& in) {
    Array result = in[0];
    esp::Shape chosen = in[0].shape;
    chosen.dims()[axis] = in[1].shape.dims()[axis];
    each_index(chosen, [&](const Index& i) {
      Index to = i;
      to[axis] = index_at(in[1], i, axis, in[0].shape.dims()[axis]);
      size_t at = 0;
      for (size_t a = 0; a < to.size(); ++a)
        at = at * static_cast<size_t>(in[0].shape.dims()[a]) + static_cast<size_t>(to[a]);
      result.values[at] = join(result.values[at], in[2](i));
    });
    return result;
  };
}

/// What scatter, scatter_add, scatter_max and scatter_min compute along the first axis.
Reference scatter_reference(Join join) {
  return [=](const std::vector<Array>& in) {
    Array result = in[0];
    const auto rows = static_cast<int64_t>(in[0].shape[0]);
    const size_t width = in[0].values.size() / static_cast<size_t>(rows);
    std::vector<int64_t> chosen(in[1].shape.begin(), in[1].shape.end());
    const size_t rank = chosen.size();
    chosen.insert(chosen.end(), in[0].shape.begin() + 1, in[0].shape.end());
    size_t element = 0;
    each_index(chosen, [&](const Index& i) {
      auto row = static_cast<int64_t>(in[1](Index(i.begin(), i.begin() + static_cast<int64_t>(rank))));
      if (row < 0) row += rows;
      double& to = result.values[static_cast<size_t>(row) * width + element++ % width];
      to = join(to, in[2](i));
    });
    return result;
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scatter)

BOOST_AUTO_TEST_CASE(takes_along_an_axis) {
  struct Row {
    esp::Shape shape;
    esp::Tensor indices;
    int64_t axis;
  };
  const Row rows[] = {
      {{3, 4}, esp::tensor({{2, 0, 2, -1}, {1, 1, 0, 0}}), 0},
      {{2, 3}, esp::tensor({{2, -3, 2, 1}, {0, 0, 1, 1}}, esp::int32), -1},
      {{2, 3, 2}, esp::tensor_from(std::vector<int64_t>{1, 0, 2, 2, 0, 1, 1, -1}, {2, 2, 2}), 1},
      {{3, 4}, esp::tensor({{2, 0, 2, 1}}), 1},     // for all rows
      {{1, 4}, esp::tensor({{2, 0}, {1, -1}}), 1},  // from one row
      {{5}, esp::tensor({4, 0, 4}), 0},
      {{3, 2}, esp::zeros({0, 2}, esp::int64), 0},
      {{0, 2}, esp::zeros({0, 5}, esp::int64), 1},
  };
  for (const Row& r : rows) {
    const auto axis =
        static_cast<size_t>(r.axis < 0 ? r.axis + static_cast<int64_t>(r.shape.rank()) : r.axis);
    esp::Shape chosen = both(r.shape.rank() == 2 && axis == 1 ? esp::Shape{r.shape[0], 1} : r.indices.shape(),
                             r.indices.shape());
    chosen.dims()[axis] = r.indices.shape().dims()[axis];
    const Reference reference = [=](const std::vector<Array>& in) {
      return Array(chosen, [&](const Index& i) {
        Index from = i;
        from[axis] = index_at(in[1], i, axis, in[0].shape.dims()[axis]);
        return in[0](from);
      });
    };
    check_op({.name = "take_along_axis",
              .op = [&](const Variables& x) { return esp::take_along_axis(x[0], x[1], r.axis); },
              .inputs = {numbers(r.shape), r.indices},
              .reference = reference});
  }
  check_op({.name = "add_along_axis_like",
            .op =
                [](const Variables& x) {
                  return esp::add_along_axis_like(x[0], x[1], x[2], 1, "take_along_axis");
                },
            .inputs = {numbers({2, 4}), esp::tensor({{2, 0, 2, -1}, {1, 1, 1, 0}}), numbers({2, 3}, 0, 0)},
            .reference =
                [](const std::vector<Array>& in) {
                  return put_reference(1, add)({in[2], in[1], in[0]});
                },
            .differentiable = {0}});
}

using Function = esp::Variable (*)(const esp::Operand&, const esp::Operand&, const esp::Operand&, int64_t);
struct Form {
  const char* name;
  Function function;
  Join join;
};

BOOST_AUTO_TEST_CASE(joins_along_an_axis) {
  struct Row {
    esp::Shape shape;
    esp::Tensor indices;
    esp::Shape values;
    size_t axis;
  };
  const Row rows[] = {
      {{3, 4}, esp::tensor({{2, 0, 2, -1}, {1, 0, 0, 2}}), {2, 4}, 0},  // 0 and 2 twice
      {{2, 3}, esp::tensor({{2, -1, 2, 1}, {0, 0, 1, 1}}, esp::int32), {2, 4}, 1},
      {{2, 3, 2}, esp::tensor_from(std::vector<int64_t>{1, 1, 2, 2, 0, 1, 0, -1}, {2, 2, 2}), {2, 1, 2}, 1},
      {{3, 4}, esp::tensor({{2, 0, 2}}), {3, 3}, 1},  // the same places in each row
      {{3, 4}, esp::tensor({{2, 0}}), {}, 1},         // one number
      {{5}, esp::tensor({4, 0, 4}), {3}, 0},
      {{3, 2}, esp::zeros({0, 2}, esp::int64), {1, 2}, 0},
      {{0, 2}, esp::zeros({0, 3}, esp::int64), {1}, 1},
  };
  const Form forms[] = {{"put_along_axis", esp::put_along_axis, put},
                        {"add_along_axis", esp::add_along_axis, add},
                        {"max_along_axis", esp::max_along_axis, larger},
                        {"min_along_axis", esp::min_along_axis, smaller}};
  for (const Row& r : rows)
    for (const Form& form : forms)
      check_op({.name = form.name,
                .op =
                    [&](const Variables& x) {
                      return form.function(x[0], x[1], x[2], static_cast<int64_t>(r.axis));
                    },
                .inputs = {numbers(r.shape), r.indices, numbers(r.values, -2, 2, 1)},
                .reference = put_reference(r.axis, form.join),
                .roundings = form.join == add ? 3 : 1});
}

BOOST_AUTO_TEST_CASE(scatters_slices) {
  struct Row {
    esp::Shape shape;
    esp::Tensor indices;
    esp::Shape values;
  };
  const Row rows[] = {
      {{3, 4}, esp::tensor({2, 0, 2}), {3, 4}},  // 2 twice
      {{4, 2}, esp::tensor({{3, -1}, {0, 2}}, esp::int32), {2, 2, 2}},
      {{4, 2, 3}, esp::tensor({3, 1}), {2, 1, 1}},
      {{4, 3}, esp::tensor(-2), {3}},
      {{4, 3}, esp::tensor({1, 1}), {}},
      {{4}, esp::tensor({2, 0, 2}), {3}},
      {{3, 2}, esp::zeros({0}, esp::int64), {1, 2}},
      {{3, 0}, esp::tensor({1}), {1}},
  };
  Form forms[] = {{"scatter", esp::scatter, put},
                  {"scatter_add", esp::scatter_add, add},
                  {"scatter_max", esp::scatter_max, larger},
                  {"scatter_min", esp::scatter_min, smaller}};
  for (const Row& r : rows)
    for (const Form& form : forms)
      check_op({.name = form.name,
                .op = [&](const Variables& x) { return form.function(x[0], x[1], x[2], 0); },
                .inputs = {numbers(r.shape), r.indices, numbers(r.values, -2, 2, 1)},
                .reference = scatter_reference(form.join),
                .roundings = form.join == add ? 3 : 1});
  // Along another axis: as along the first, transposed.
  const esp::Tensor at = esp::tensor({2, 0, 2});
  forms[1] = {"index_add", esp::index_add, add};
  for (const Form& form : forms)
    check_op({.name = std::string(form.name) + " along axis 1",
              .op = [&](const Variables& x) { return form.function(x[0], x[1], x[2], 1); },
              .inputs = {numbers({2, 3}), at, numbers({2, 3}, -2, 2, 1)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    const Array places({1, 3}, [&](const Index& i) { return in[1]({i[1]}); });
                    return put_reference(1, form.join)({in[0], places, in[2]});
                  },
              .roundings = form.join == add ? 3 : 1});
}

BOOST_AUTO_TEST_CASE(the_last_of_several_stays) {
  const esp::Variable x = esp::variable(numbers({3})), values = esp::variable(numbers({4}));
  const esp::Tensor at = esp::tensor({1, 0, 1, 1});
  const esp::Variable y = esp::scatter(x, at, values);
  BOOST_TEST(y.value().at<double>({1}) == values.value().at<double>({3}));
  esp::Variable loss = esp::sum(y * esp::tensor({1.0, 2.0, 3.0}, esp::float64));
  const esp::Tensor to_values = loss.gradient(values).value(), to_x = loss.gradient(x).value();
  BOOST_TEST(difference(to_values, esp::tensor({0.0, 1.0, 0.0, 2.0}, esp::float64)) == 0);
  BOOST_TEST(difference(to_x, esp::tensor({0.0, 0.0, 3.0}, esp::float64)) == 0);
}

BOOST_AUTO_TEST_CASE(equal_extremes_share_the_gradient) {
  const esp::Variable x = esp::variable(esp::tensor({{3.0, 1.0, 5.0}, {0.0, 0.0, 0.0}}, esp::float64));
  const esp::Variable values = esp::variable(esp::tensor({{3.0, 2.0, 4.0}, {3.0, 2.0, 5.0}}, esp::float64));
  const esp::Tensor at = esp::tensor({0, 0});
  esp::Variable loss = esp::sum(esp::scatter_max(x, at, values) * esp::tensor({6.0, 6.0, 6.0}, esp::float64));
  const esp::Tensor to_x = loss.gradient(x).value(), to_values = loss.gradient(values).value();
  BOOST_TEST(difference(to_x, esp::tensor({{2.0, 0.0, 3.0}, {6.0, 6.0, 6.0}}, esp::float64)) == 0);
  BOOST_TEST(difference(to_values, esp::tensor({{2.0, 3.0, 0.0}, {2.0, 3.0, 3.0}}, esp::float64)) == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [held, value] : {std::pair(nan, 1.0), std::pair(1.0, nan)})
    for (const Function f : {esp::scatter_max, esp::scatter_min, esp::max_along_axis, esp::min_along_axis})
      BOOST_TEST(std::isnan(
          f(esp::tensor({held}, esp::float64), esp::tensor({0}), esp::tensor({value}, esp::float64), 0)
              .item()));
}

/// softmax of the elements of each segment, whatever their size.
BOOST_AUTO_TEST_CASE(softmax_of_segments) {
  const esp::Tensor segment = esp::tensor({1, 0, 1, 3, 0, 1});  // none for 2
  const esp::Variable x = esp::variable(esp::tensor({700.0, -900.0, 701.0, 5.0, -901.0, -3.0}, esp::float64));
  const esp::Variable none = esp::zeros({4}, esp::float64);
  const double lowest = -std::numeric_limits<double>::infinity();
  const esp::Variable most = esp::stop_gradient(esp::scatter_max(none + lowest, segment, x));
  const esp::Variable y = esp::exp(x - esp::gather(most, segment));
  esp::Variable softmax = y / esp::gather(esp::scatter_add(none, segment, y), segment);
  for (const auto& places : {esp::tensor({0, 2, 5}), esp::tensor({1, 4}), esp::tensor({3})}) {
    const esp::Variable own = esp::variable(esp::gather(x, places).value()), of_own = esp::softmax(own);
    BOOST_TEST(difference(esp::gather(softmax, places).value(), of_own.value()) < 1e-12);
    esp::Variable a = esp::sum(esp::square(esp::gather(softmax, places))), b = esp::sum(esp::square(of_own));
    BOOST_TEST(difference(esp::gather(a.gradient(x), places).value(), b.gradient(own).value()) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(numbers_and_other_types) {
  const esp::Variable x = esp::zeros({2, 3}, esp::int64);
  const esp::Tensor marked = esp::scatter(x, esp::tensor({1}), 7).value();
  BOOST_TEST(marked.at<int64_t>({1, 2}) == 7);
  BOOST_TEST(marked.at<int64_t>({0, 2}) == 0);
  const esp::Variable flags = esp::tensor({true, false});
  BOOST_TEST(esp::put_along_axis(flags, esp::tensor({1}), true, 0).value().at<bool>({1}));
  BOOST_TEST(esp::add_along_axis(x, esp::tensor({{0, 0, 0}}), 2, 1).value().at<int64_t>({1, 0}) == 6);
  BOOST_TEST(esp::scatter_max(x, esp::tensor({0, 0}), 2).value().at<int64_t>({0, 1}) == 2);
  BOOST_TEST(x.value().at<int64_t>({1, 2}) == 0);  // what it was before
}

BOOST_AUTO_TEST_CASE(threads_share_large_ones) {
  const int before = esp::num_threads();
  const int64_t rows = 300, count = 700, width = 150;
  esp::Tensor at({count, width}, esp::int64);
  for (int64_t i = 0; i < at.elements(); ++i) at.span<int64_t>()[static_cast<size_t>(i)] = i * i % rows;
  const esp::Tensor x = numbers({rows, width}), values = numbers({count, width}, -2, 2, 1);
  std::vector<std::vector<esp::Tensor>> seen;
  for (const int threads : {1, 3}) {
    esp::set_num_threads(threads);
    seen.push_back({esp::take_along_axis(x, at, 0).value(), esp::put_along_axis(x, at, values, 0).value(),
                    esp::add_along_axis(x, at, values, 0).value(),
                    esp::max_along_axis(x, at, values, 0).value(),
                    esp::scatter_min(x, esp::slice(at, 1, 1, 2), esp::unsqueeze(values, 1)).value()});
  }
  esp::set_num_threads(before);
  for (size_t i = 0; i < 5; ++i) BOOST_TEST(difference(seen[0][i], seen[1][i]) == 0);  // to the bit
  BOOST_TEST(difference(put_reference(0, put)({Array(x), Array(at), Array(values)}), seen[1][1]) == 0);
}

BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 3}, esp::float64),
                      at = esp::placeholder("at", {4, 2}, esp::int64);
  const esp::Variable y = esp::put_along_axis(x, at, esp::take_along_axis(x, at, 1) * 2.0, 1);
  const esp::Executor executor = y.get_executor();
  for (const int64_t rows : {4, 2}) {
    const esp::Tensor some = numbers({rows, 3});
    esp::Tensor places({rows, 2}, esp::int64);
    for (int64_t r = 0; r < rows; ++r) places.at<int64_t>({r, 0}) = r % 3, places.at<int64_t>({r, 1}) = -1;
    const Array picked(esp::take_along_axis(some, places, 1).value());
    Array doubled = picked;
    for (double& value : doubled.values) value *= 2;
    BOOST_TEST(difference(put_reference(1, put)({Array(some), Array(places), doubled}),
                          executor.run({{"x", some}, {"at", places}})) == 0);
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4}), at = esp::tensor({{0}, {1}, {2}});
  BOOST_CHECK_EXCEPTION(esp::take_along_axis(x, esp::tensor({{4}}), 1), esp::IndexError,
                        says({"take_along_axis", "4", here()}));
  BOOST_CHECK_EXCEPTION(esp::put_along_axis(x, esp::tensor({{-4}}), 1.0, 0), esp::IndexError,
                        says({"put_along_axis", "-4", here()}));
  BOOST_CHECK_EXCEPTION(esp::add_along_axis(x, esp::tensor({{3}}), 1.0, 0), esp::IndexError,
                        says({"add_along_axis: index 3", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter(x, esp::tensor({3}), 1.0), esp::IndexError,
                        says({"scatter", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter_add(x, 4, 1.0, 1), esp::IndexError,
                        says({"scatter_add: index 4", here()}));
  BOOST_CHECK_EXCEPTION(esp::index_add(x, 4, 1.0, 1), esp::IndexError, says({"index_add: index 4", here()}));
  // The arguments of PyTorch's functions of these names.
  const esp::Variable two = esp::tensor({{0, 1, 1}, {2, 0, 0}}), ones = esp::ones({2, 3});
  for (const int64_t axis : {0, 1}) {
    BOOST_CHECK_EXCEPTION(esp::scatter_add(x, two, ones, axis), esp::ShapeError,
                          says({"scatter_add: values of shape [2, 3]", axis ? "[3, 2, 3]" : "[2, 3, 4]",
                                "add_along_axis", here()}));
    BOOST_CHECK_EXCEPTION(esp::scatter(x, two, ones, axis), esp::ShapeError,
                          says({"scatter: values of shape [2, 3]", "put_along_axis", here()}));
  }
  BOOST_TEST(esp::scatter_add(x, two, esp::reshape(ones, {1, 2, 3}), 1).shape() == esp::Shape({3, 4}));
  BOOST_CHECK_EXCEPTION(esp::take_along_axis(x, esp::tensor({0}), 1), esp::ShapeError,
                        says({"take_along_axis", "[1]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::take_along_axis(x, esp::tensor({{0}, {1}}), 1), esp::ShapeError,
                        says({"take_along_axis", "[2, 1]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::take_along_axis(x, at, 2), esp::ShapeError,
                        says({"take_along_axis", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::put_along_axis(x, at, esp::ones({2, 1}), 1), esp::ShapeError,
                        says({"put_along_axis", "[2, 1]", "[3, 1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter(x, esp::tensor({0, 1}), esp::ones({3, 4})), esp::ShapeError,
                        says({"scatter", "[3, 4]", "[2, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter(x, x, 1.0), esp::TypeError, says({"scatter", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter(x, 0, esp::ones({4}, esp::float64)), esp::TypeError,
                        says({"scatter", "float64", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::add_along_axis(esp::tensor({true}), esp::tensor({0}), true, 0), esp::TypeError,
                        says({"add_along_axis", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter_max(esp::tensor({true}), esp::tensor({0}), true), esp::TypeError,
                        says({"scatter_max", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter_min(x, esp::tensor({3}), 1.0), esp::IndexError,
                        says({"scatter_min", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::max_along_axis(x, at, esp::ones({2, 1}), 1), esp::ShapeError,
                        says({"max_along_axis", "[2, 1]", "[3, 1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::scatter(x, esp::Variable(), 1.0), esp::Error,
                        says({"scatter", "undefined", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
