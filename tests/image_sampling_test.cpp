// Images at places between their elements: grids, samples and other sizes, against PyTorch's figures.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/grid_sample.h"
#include "espalier/ops/functions/interpolate.h"
#include "espalier/ops/ops.h"
#include "figures/images.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

/// The numbers of figures/images.py.
Tensor dyadic(const Shape& shape, int64_t a, int64_t b, int64_t size) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<double>((a * i) % b - b / 2) / static_cast<double>(size));
  return esp::tensor_from(values, shape);
}
Variable weighted_sum(const Variable& y) { return esp::sum(y * dyadic(y.shape(), 29, 31, 16)); }
Tensor figures(const Doubles& values, const Shape& shape) { return esp::tensor_from(values, shape); }

esp::GridSampleOptions options_of(const GridSampleFigures& f) { return {f.mode, f.padding, f.align_corners}; }
esp::InterpolateOptions options_of(const InterpolateFigures& f) {
  return {f.size, f.scale, f.mode, f.align_corners};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(image_sampling)

BOOST_AUTO_TEST_CASE(samples_are_those_of_pytorch) {
  BOOST_REQUIRE(!grid_sample_figures.empty());
  for (const GridSampleFigures& f : grid_sample_figures) {
    const Variable x = esp::variable(dyadic(Shape(f.x), 37, 53, 16)),
                   grid = esp::variable(dyadic(Shape(f.grid), 17, 53, 16));
    const Variable y = esp::grid_sample(x, grid, options_of(f)), loss = weighted_sum(y);
    const std::string name = "mode " + std::to_string(static_cast<int>(f.mode)) + ", padding " +
                             std::to_string(static_cast<int>(f.padding)) +
                             (f.align_corners ? ", corners, " : ", edges, ") + Shape(f.x).str();
    BOOST_TEST(difference(figures(f.values, Shape(f.result)), y.value()) < 1e-13, name);
    BOOST_TEST(difference(figures(f.of_x, Shape(f.x)), loss.gradient(x).value()) < 1e-13, name << ", x");
    if (f.mode != esp::SampleMode::nearest)
      BOOST_TEST(difference(figures(f.of_grid, Shape(f.grid)), loss.gradient(grid).value()) < 1e-13,
                 name << ", grid");
  }
}

BOOST_AUTO_TEST_CASE(grids_are_those_of_pytorch) {
  BOOST_REQUIRE(!affine_grid_figures.empty());
  for (const AffineGridFigures& f : affine_grid_figures) {
    const auto k = static_cast<int64_t>(f.sizes.size());
    const Variable theta = esp::variable(dyadic({2, k, k + 1}, 13, 23, 8));
    const Variable grid = esp::affine_grid(theta, Shape(f.sizes), f.align_corners);
    BOOST_TEST(grid.rank() == f.sizes.size() + 2);
    BOOST_TEST(difference(figures(f.values, grid.shape()), grid.value()) < 1e-13);
    BOOST_TEST(difference(figures(f.of_theta, theta.shape()), weighted_sum(grid).gradient(theta).value()) <
               1e-12);
  }
}

BOOST_AUTO_TEST_CASE(sizes_are_those_of_pytorch) {
  BOOST_REQUIRE(!interpolate_figures.empty());
  for (const InterpolateFigures& f : interpolate_figures) {
    const Variable x = esp::variable(dyadic(Shape(f.x), 37, 53, 16)), y = esp::interpolate(x, options_of(f));
    const std::string name = "mode " + std::to_string(static_cast<int>(f.mode)) +
                             (f.align_corners ? ", corners, " : ", edges, ") + Shape(f.x).str() + " to " +
                             Shape(f.result).str();
    BOOST_TEST(difference(figures(f.values, Shape(f.result)), y.value()) < 1e-12, name);
    BOOST_TEST(difference(figures(f.of_x, Shape(f.x)), weighted_sum(y).gradient(x).value()) < 1e-12, name);
  }
}

BOOST_AUTO_TEST_CASE(derivatives_types_and_plans) {
  // Between the 2ᵏ elements around a point, of an image with 3 along each axis.
  const auto sampled = [](const Array& x, const Array& grid, const Index& i) {
    const size_t axes = x.shape.rank() - 2;
    double sum = 0;
    each_index(Shape(Index(axes, 2)), [&](const Index& corner) {
      Index from{i[0], i[1]};
      double part = 1;
      for (size_t a = 0; a < axes; ++a) {
        Index point{i[0]};
        point.insert(point.end(), i.begin() + 2, i.end());
        point.push_back(static_cast<int64_t>(axes - 1 - a));
        const double place = ((grid(point) + 1) * 3 - 1) / 2;
        from.push_back(static_cast<int64_t>(std::floor(place)) + corner[a]);
        if (from.back() < 0 || from.back() > 2) return;
        part *= 1 - std::abs(place - static_cast<double>(from.back()));
      }
      sum += part * x(from);
    });
    return sum;
  };
  // Points between the elements along all axes, so that differences do not cross a kink.
  const std::pair<Tensor, Tensor> images[] = {
      {numbers({2, 1, 3, 3}), numbers({2, 1, 2, 2}, -0.6, -0.4, 1)},
      {numbers({1, 2, 3, 3, 3}), numbers({1, 1, 2, 1, 3}, -0.6, -0.4, 1)}};
  for (const auto& [image, points] : images)
    check_op({.name = "grid_sample",
              .op = [](const Variables& v) { return esp::grid_sample(v[0], v[1]); },
              .inputs = {image, points},
              .reference =
                  [&](const std::vector<Array>& in) {
                    Shape y{in[0].shape[0], in[0].shape[1]};
                    for (size_t a = 1; a + 1 < in[1].shape.rank(); ++a)
                      y.dims().push_back(in[1].shape.dims()[a]);
                    return Array(y, [&](const Index& i) { return sampled(in[0], in[1], i); });
                  },
              .tolerance32 = 1e-5,
              .roundings = 0});
  check_op({.name = "affine_grid",
            .op =
                [](const Variables& v) {
                  return esp::affine_grid(v[0], {2, 2});
                },
            .inputs = {numbers({2, 2, 3})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 2, 2, 2}, [&](const Index& i) {
                    const double x = i[2] == 0 ? -0.5 : 0.5, y = i[1] == 0 ? -0.5 : 0.5;
                    return in[0]({i[0], i[3], 0}) * x + in[0]({i[0], i[3], 1}) * y + in[0]({i[0], i[3], 2});
                  });
                },
            .roundings = 3});
}

// The values are those of PyTorch in float64 (above), which are the references of the other types and
// devices.
BOOST_AUTO_TEST_CASE(modes_in_types_and_plans) {
  const auto in_float64 = [](const std::function<Variable(const Variables&)>& op) {
    return [=](const std::vector<Array>& in) {
      Variables all;
      for (const Array& x : in) all.emplace_back(esp::tensor_from(x.values, x.shape));
      return Array(op(all).value());
    };
  };
  using esp::Interpolation;
  for (const esp::InterpolateOptions& options :
       {esp::InterpolateOptions{.size = {4}, .mode = Interpolation::linear},
        {.size = {4}, .mode = Interpolation::cubic},
        {.size = {4}, .mode = Interpolation::nearest},
        {.size = {4}, .mode = Interpolation::nearest_exact},
        {.size = {5}, .mode = Interpolation::linear, .align_corners = true},
        {.size = {5}, .mode = Interpolation::cubic, .align_corners = true},
        {.scale = {1.75}, .mode = Interpolation::nearest},
        {.scale = {1.75}, .mode = Interpolation::linear}}) {
    const auto op = [=](const Variables& v) { return esp::interpolate(v[0], options); };
    check_op({.name = "interpolate",
              .op = op,
              .inputs = {numbers({2, 1, 3})},
              .reference = in_float64(op),
              .roundings = 3});
  }
  // Some points are outside of the image.
  using esp::SampleMode, esp::SamplePadding;
  for (const esp::GridSampleOptions& options :
       {esp::GridSampleOptions{.mode = SampleMode::nearest},
        {.padding = SamplePadding::border},
        {.padding = SamplePadding::reflection},
        {.padding = SamplePadding::reflection, .align_corners = true},
        {.mode = SampleMode::nearest, .align_corners = true},
        {.mode = SampleMode::cubic},
        {.mode = SampleMode::cubic, .padding = SamplePadding::border},
        {.mode = SampleMode::cubic, .padding = SamplePadding::reflection, .align_corners = true}}) {
    const auto op = [=](const Variables& v) { return esp::grid_sample(v[0], v[1], options); };
    const Tensor points = esp::tensor({-0.55, 0.9, -1.45, 0.42, 1.2, -1.3}, esp::float64);
    const bool cubic = options.mode == SampleMode::cubic;
    check_op({.name = "grid_sample",
              .op = op,
              .inputs = {numbers({1, 1, 3, 3}), points.reshape({1, 1, 3, 2})},
              .reference = in_float64(op),
              .tolerance32 = 1e-5,
              .roundings = 0});
    check_op({.name = "grid_sample of a volume",
              .op = op,
              .inputs = {numbers(cubic ? Shape{1, 1, 2, 3, 2} : Shape{1, 1, 3, 3, 3}),
                         cubic ? numbers({1, 1, 1, 1, 3}, -0.3, -0.1, 3) : points.reshape({1, 1, 1, 2, 3})},
              .reference = in_float64(op),
              .tolerance32 = 1e-5,
              .roundings = 0});
  }
}

BOOST_AUTO_TEST_CASE(points_far_outside_are_reflected_several_times) {
  const Tensor x = esp::tensor({5.0, 6.0, 7.0}, esp::float64).reshape({1, 1, 3});
  const Variable positions = esp::arange(15, esp::float64).reshape({1, 15, 1}) - 6.0;
  const std::vector<std::pair<bool, Doubles>> reflections{
      {true, {7, 6, 5, 6, 7, 6, 5, 6, 7, 6, 5, 6, 7, 6, 5}},    // at the centres of the outer elements
      {false, {5, 6, 7, 7, 6, 5, 5, 6, 7, 7, 6, 5, 5, 6, 7}}};  // at their edges
  for (const auto& [corners, expected] : reflections)
    for (const auto mode : {esp::SampleMode::linear, esp::SampleMode::nearest}) {
      const Variable grid = corners ? positions - 1.0 : (positions + 0.5) * (2.0 / 3) - 1.0;
      const Variable y = esp::grid_sample(
          x, grid, {.mode = mode, .padding = esp::SamplePadding::reflection, .align_corners = corners});
      BOOST_TEST(difference(figures(expected, {1, 1, 15}), y.value()) < 1e-13, corners);
    }
}

// The rows of a batch, and what reads them, are fewer in the last one.
BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const Variable x = esp::placeholder("x", {-1, 2, 3, 4}, esp::float64),
                 theta = esp::placeholder("theta", {-1, 2, 3}, esp::float64);
  const auto op = [](const Variable& image, const Variable& map) {
    const Variable large = esp::interpolate(image, {.size = {5, 6}, .mode = esp::Interpolation::linear});
    return esp::grid_sample(large, esp::affine_grid(map, {3, 2}),
                            {.padding = esp::SamplePadding::reflection});
  };
  const esp::Executor executor = op(x, theta).get_executor();
  for (const int64_t rows : {4, 2, 3}) {
    const Tensor image = numbers({rows, 2, 3, 4}), map = numbers({rows, 2, 3}, -1, 1, 1);
    const Tensor planned = executor.run({{"x", image}, {"theta", map}});
    BOOST_TEST(planned.shape() == Shape({rows, 2, 3, 2}));
    BOOST_TEST(difference(op(image, map).value(), planned) < 1e-13);
  }
  const Tensor none = esp::grid_sample(esp::ones({0, 2, 3, 3}), esp::ones({0, 4, 4, 2})).value();
  BOOST_TEST(none.shape() == Shape({0, 2, 4, 4}));
}

// Positions are made of the sizes of an image, so these cannot be open.
BOOST_AUTO_TEST_CASE(samples_of_open_sizes_are_refused) {
  const Variable grid = esp::placeholder("grid", {-1, 2, 2, 2});
  for (const Shape& sizes : {Shape{-1, 1, -1, 4}, Shape{-1, 1, 4, -1}})
    for (const bool corners : {false, true}) {
      const Variable x = esp::placeholder("x", sizes);
      const auto [samples, line] = std::pair(esp::grid_sample(x, grid, {.align_corners = corners}), here());
      BOOST_CHECK_EXCEPTION(samples.get_executor(), esp::UnsupportedError, says({line}));
    }
}

BOOST_AUTO_TEST_CASE(identities) {
  const Tensor x = numbers({2, 3, 4, 5});
  const Tensor still = esp::tensor_from(std::vector<double>{1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0}, {2, 2, 3});
  for (const bool corners : {false, true}) {
    const Variable grid = esp::affine_grid(still, {4, 5}, corners);
    for (const auto mode : {esp::SampleMode::linear, esp::SampleMode::nearest, esp::SampleMode::cubic})
      BOOST_TEST(difference(x, esp::grid_sample(x, grid, {.mode = mode, .align_corners = corners}).value()) <
                 1e-13);
    BOOST_TEST(
        difference(x, esp::interpolate(
                          x, {.size = {4, 5}, .mode = esp::Interpolation::linear, .align_corners = corners})
                          .value()) == 0);
  }
  // A point far away, or nowhere.
  for (const double far : {1e300, -1e300, static_cast<double>(INFINITY)}) {
    const Tensor grid = esp::full({1, 1, 1, 2}, far, esp::float64);
    BOOST_TEST(esp::grid_sample(x.slice(0, 0, 1), grid, {.mode = esp::SampleMode::nearest})
                   .value()
                   .at<double>({0, 0, 0, 0}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const Variable x = esp::ones({2, 3, 4, 4});
  BOOST_CHECK_EXCEPTION(esp::grid_sample(x, esp::ones({2, 3, 3, 3})), esp::ShapeError,
                        says({"grid_sample", "[2, 3, 4, 4]", "[2, 3, 3, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::grid_sample(x, esp::ones({3, 3, 3, 2})), esp::ShapeError,
                        says({"grid_sample", here()}));
  BOOST_CHECK_EXCEPTION(esp::grid_sample(x, esp::ones({2, 3, 3, 2}, esp::float64)), esp::TypeError,
                        says({"grid_sample", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::grid_sample(esp::ones({2, 3, 0, 4}), esp::ones({2, 1, 1, 2})), esp::ShapeError,
                        says({"grid_sample", "[2, 3, 0, 4]", "no elements", here()}));
  BOOST_CHECK_EXCEPTION(esp::affine_grid(esp::ones({2, 3, 3}), {4, 4}), esp::ShapeError,
                        says({"affine_grid", "[2, 3, 3]", "[n, 2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::affine_grid(esp::ones({2, 2, 3}), {4, -4}), esp::ShapeError, says({here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {}), esp::Error, says({"interpolate", "either", here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.size = {1, 2, 3}}), esp::ShapeError,
                        says({"interpolate", "3 numbers", "2 axes", here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.size = {4, 0}}), esp::Error,
                        says({"interpolate", "axis 3", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.scale = {0.1}}), esp::ShapeError,
                        says({"interpolate", "axis 2", "0.1", here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.scale = {NAN}}), esp::Error,
                        says({"interpolate", "nan", here()}));
  BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.size = {2}, .align_corners = true}), esp::Error,
                        says({"interpolate", "nearest", here()}));
  // No memory is taken for the places of so many elements before there is a tensor of them.
  for (const auto mode :
       {esp::Interpolation::nearest, esp::Interpolation::linear, esp::Interpolation::cubic}) {
    BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.size = {int64_t{1} << 50, 1}, .mode = mode}),
                          esp::OutOfMemory, says({here()}));
    BOOST_CHECK_EXCEPTION(esp::interpolate(x, {.size = {int64_t{1} << 40}, .mode = mode}), esp::ShapeError,
                          says({here()}));
  }
  BOOST_CHECK_EXCEPTION(esp::interpolate(esp::ones({2, 3}), {.size = {2}}), esp::ShapeError,
                        says({"interpolate", "[2, 3]", here()}));
}

BOOST_AUTO_TEST_CASE(places_of_nearest_elements_are_exact) {
  // In float64, 14 · (45 / 30) and the like fall below whole numbers.
  for (const auto& [in, out] : {std::pair(26, 46), {30, 22}, {30, 44}, {45, 33}, {49, 7}}) {
    const Tensor x = esp::arange(in, esp::float64).reshape({1, 1, in});
    const Tensor y = esp::interpolate(x, {.size = {out}, .mode = esp::Interpolation::nearest}).value();
    for (int64_t i = 0; i < out; ++i)
      BOOST_TEST(y.at<double>({0, 0, i}) == static_cast<double>(i * in / out));
  }
}

BOOST_AUTO_TEST_CASE(a_scale_that_keeps_the_size_moves_elements) {
  const Tensor x = esp::tensor({0.0, 6.0, 12.0}, esp::float64).reshape({1, 1, 3});
  const Variable y = esp::interpolate(x, {.scale = {1.25}, .mode = esp::Interpolation::linear});
  BOOST_TEST(y.shape() == x.shape());
  BOOST_TEST(difference(y.value(), esp::tensor({0.0, 4.2, 9.0}, esp::float64).reshape({1, 1, 3})) < 1e-14);
}

BOOST_AUTO_TEST_SUITE_END()
