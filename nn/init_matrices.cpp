#include "espalier/nn/init_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/sampling.h"
#include "espalier/nn/orthonormal.h"

namespace espalier::nn::init {

namespace {

void need_finite(const char* what, double value) {
  if (!std::isfinite(value)) throw Error(fmt::format("{} must be a finite number, not {}", what, value));
}

/// Gives a parameter these values, row by row.
void write_values(Tensor& parameter, const std::vector<double>& values) {
  copy_elements(tensor_from(values, parameter.shape()).to(parameter.dtype()), parameter);
}

std::vector<double> normal_numbers(const RandomStream& stream, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  fill_normal(stream, values.data(), count, 0, 1);
  return values;
}

/// Standard normal numbers in [low, high], mirrored if that is above 0: in the lower tail, small
/// probabilities keep their digits.
struct NormalInterval {
  double sign, low, high, below, width;

  NormalInterval(double from, double to)
      : sign(from > 0 ? -1 : 1),
        low(from > 0 ? -to : from),
        high(from > 0 ? -from : to),
        below(probability_below(low)),
        width(probability_below(high) - below) {}
  static double probability_below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
  /// The number below which the share `uniform` of all is.
  double operator()(double uniform) const {
    const double p = below + width * uniform;
    return sign * (p > 0 && p < 1 ? std::clamp(sampling::normal_quantile(p), low, high) : p > 0 ? high : low);
  }
};

void need_axes(const char* initializer, const Shape& shape, size_t least, size_t most) {
  if (shape.rank() >= least && shape.rank() <= most) return;
  const std::string axes = least == most ? fmt::format("{}", least)
                           : most > 100  ? fmt::format("{} or more", least)
                                         : fmt::format("{} to {}", least, most);
  throw ShapeError(
      fmt::format("{} fills parameters of {} axes, not of shape {}", initializer, axes, shape.str()));
}

/// The position of the middle of a kernel, and the number of its elements.
std::pair<int64_t, int64_t> middle_of_kernel(const Shape& shape) {
  int64_t middle = 0, size = 1;
  for (size_t axis = 2; axis < shape.rank(); ++axis) {
    middle = middle * shape[axis] + shape[axis] / 2;
    size *= shape[axis];
  }
  return {middle, size};
}

}  // namespace

TruncatedNormal::TruncatedNormal(double mean, double stddev, double low, double high)
    : Initializer(Fill([=](Tensor& parameter, Fans) {
        const NormalInterval interval((low - mean) / stddev, (high - mean) / stddev);
        std::vector<double> values(static_cast<size_t>(parameter.elements()));
        fill_uniform(next_parameter_stream(), values.data(), parameter.elements(), 0, 1);
        for (double& value : values) value = std::clamp(mean + stddev * interval(value), low, high);
        write_values(parameter, values);
      })) {
  need_finite("TruncatedNormal: mean", mean);
  need_finite("TruncatedNormal: stddev", stddev);
  if (stddev <= 0) throw Error(fmt::format("TruncatedNormal: stddev is {}; it must be positive", stddev));
  if (!(low < high)) throw Error(fmt::format("TruncatedNormal: low is {} and high {}", low, high));
  if (!(NormalInterval((low - mean) / stddev, (high - mean) / stddev).width > 0))
    throw Error(fmt::format("TruncatedNormal: the interval from {} to {} has no probability", low, high));
}

Orthogonal::Orthogonal(double gain)
    : Initializer(Fill([gain](Tensor& parameter, Fans) {
        const Shape& shape = parameter.shape();
        need_axes("Orthogonal", shape, 2, SIZE_MAX);
        const int64_t rows = shape[0], columns = rows > 0 ? shape.elements() / rows : 0;
        if (shape.elements() == 0) return;
        write_values(parameter, orthogonal_matrix(normal_numbers(next_parameter_stream(), rows * columns),
                                                  rows, columns, gain));
      })) {
  need_finite("Orthogonal: gain", gain);
}

DeltaOrthogonal::DeltaOrthogonal(double gain)
    : Initializer(Fill([gain](Tensor& parameter, Fans) {
        const Shape& shape = parameter.shape();
        need_axes("DeltaOrthogonal", shape, 3, SIZE_MAX);
        const int64_t out = shape[0], in = shape[1];
        if (in > out)
          throw ShapeError(fmt::format(
              "DeltaOrthogonal needs as many outputs as inputs, or more: the shape is {}", shape.str()));
        if (shape.elements() == 0) return;
        const auto [middle, kernel] = middle_of_kernel(shape);
        const std::vector<double> matrix =
            orthogonal_matrix(normal_numbers(next_parameter_stream(), out * in), out, in, gain);
        std::vector<double> values(static_cast<size_t>(shape.elements()), 0.0);
        for (size_t i = 0; i < matrix.size(); ++i)
          values[i * static_cast<size_t>(kernel) + static_cast<size_t>(middle)] = matrix[i];
        write_values(parameter, values);
      })) {
  need_finite("DeltaOrthogonal: gain", gain);
}

Eye::Eye()
    : Initializer(Fill([](Tensor& parameter, Fans) {
        const Shape& shape = parameter.shape();
        need_axes("Eye", shape, 2, 2);
        std::vector<double> values(static_cast<size_t>(shape.elements()), 0.0);
        for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i)
          values[static_cast<size_t>(i * shape[1] + i)] = 1;
        write_values(parameter, values);
      })) {}

Dirac::Dirac(int64_t groups)
    : Initializer(Fill([groups](Tensor& parameter, Fans) {
        const Shape& shape = parameter.shape();
        need_axes("Dirac", shape, 3, 5);
        if (shape[0] % groups != 0)
          throw ShapeError(
              fmt::format("Dirac: {} groups do not divide the outputs of the shape {}", groups, shape.str()));
        const auto [middle, kernel] = middle_of_kernel(shape);
        const int64_t outputs = shape[0] / groups;
        std::vector<double> values(static_cast<size_t>(shape.elements()), 0.0);
        if (!values.empty())
          for (int64_t group = 0; group < groups; ++group)
            for (int64_t i = 0; i < std::min(outputs, shape[1]); ++i)
              values[static_cast<size_t>(((group * outputs + i) * shape[1] + i) * kernel + middle)] = 1;
        write_values(parameter, values);
      })) {
  if (groups < 1) throw Error(fmt::format("Dirac: there cannot be {} groups", groups));
}

Sparse::Sparse(double sparsity, double stddev)
    : Initializer(Fill([=](Tensor& parameter, Fans) {
        const Shape& shape = parameter.shape();
        need_axes("Sparse", shape, 2, 2);
        const int64_t rows = shape[0], columns = shape[1];
        const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
        RandomStream stream = next_parameter_stream();
        std::vector<double> values = normal_numbers(stream, shape.elements());
        for (double& value : values) value *= stddev;
        stream.first =
            2 * shape.elements();  // further numbers: in each column the smallest keys become zeros
        std::vector<double> keys(values.size());
        fill_uniform(stream, keys.data(), shape.elements(), 0, 1);
        std::vector<int64_t> order(static_cast<size_t>(rows));
        for (int64_t column = 0; column < columns; ++column) {
          std::iota(order.begin(), order.end(), int64_t{0});
          std::ranges::sort(order, {}, [&](int64_t row) {
            return std::pair(keys[static_cast<size_t>(row * columns + column)], row);
          });
          for (int64_t i = 0; i < zeros; ++i)
            values[static_cast<size_t>(order[static_cast<size_t>(i)] * columns + column)] = 0;
        }
        write_values(parameter, values);
      })) {
  if (!(sparsity >= 0 && sparsity <= 1))
    throw Error(fmt::format("Sparse: sparsity is {}; it must be from 0 to 1", sparsity));
  need_finite("Sparse: stddev", stddev);
  if (stddev < 0) throw Error(fmt::format("Sparse: stddev is {}; it cannot be negative", stddev));
}

double gain_of(std::string_view nonlinearity) { return gain_of(nonlinearity, 0.01); }

double gain_of(std::string_view nonlinearity, double a) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + a * a));
  if (nonlinearity == "selu") return 0.75;
  throw Error(fmt::format("gain_of knows no nonlinearity '{}'", nonlinearity));
}

}  // namespace espalier::nn::init
