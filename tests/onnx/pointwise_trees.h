// Elementwise functions at points where formulas go wrong, which are written as files.
#pragma once
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "espalier/espalier.h"

namespace espalier::testing {

using MakePointwise = Variable (*)(const Variable& a, const Variable& b);

/// Functions of one or two operands, by name.
inline std::vector<std::pair<std::string, MakePointwise>> pointwise_functions() {
  using Var = const Variable&;
  return {
      {"gelu by tanh", [](Var a, Var) { return gelu(clamp(a, -50, 50), GeluApproximation::tanh); }},
      {"remainder", [](Var a, Var b) { return remainder(a, b); }},
      {"fmod", [](Var a, Var b) { return fmod(a, b); }},
      {"floor_divide", [](Var a, Var b) { return floor_divide(a, b); }},
      {"softshrink", [](Var a, Var) { return softshrink(a, 0.4); }},
      {"hardshrink", [](Var a, Var) { return hardshrink(a, 0.3f); }},
      {"log_sigmoid", [](Var a, Var) { return log_sigmoid(a); }},
      {"tanhshrink", [](Var a, Var) { return tanhshrink(a); }},
      {"logaddexp", [](Var a, Var b) { return logaddexp(a, b); }},
      {"xlogy", [](Var a, Var b) { return xlogy(a, b); }},
      {"hypot", [](Var a, Var b) { return hypot(a, b); }},
      {"atan2", [](Var a, Var b) { return atan2(a, b); }},
      {"heaviside", [](Var a, Var b) { return heaviside(a, b); }},
      {"isfinite", [](Var a, Var) { return cast(isfinite(a), float32); }},
      {"isnan", [](Var a, Var) { return cast(isnan(a), float32); }},
      {"isinf", [](Var a, Var) { return cast(isinf(a), float32); }},
      {"isposinf", [](Var a, Var) { return cast(isposinf(a), float32); }},
      {"isneginf", [](Var a, Var) { return cast(isneginf(a), float32); }},
      {"isclose", [](Var a, Var b) { return cast(isclose(a, b, {.equal_nan = true}), float32); }},
      {"sinc", [](Var a, Var) { return sinc(a); }},
      {"prelu",
       [](Var a, Var b) {
         return prelu(stack({a, b}, 1), tensor({0.1, -0.5}));
       }},
  };
}

/// Functions of integers.
inline std::vector<std::pair<std::string, MakePointwise>> integer_functions() {
  using Var = const Variable&;
  return {
      {"remainder of integers", [](Var a, Var b) { return remainder(a, b); }},
      {"remainder by an integer", [](Var a, Var) { return a % 3; }},
      {"fmod of integers", [](Var a, Var b) { return fmod(a, b); }},
      {"floor_divide of integers", [](Var a, Var b) { return floor_divide(a, b); }},
      {"heaviside of integers", [](Var a, Var b) { return heaviside(a, b); }},
      {"isfinite of integers", [](Var a, Var) { return cast(isfinite(a), int64); }},
      {"isnan of integers", [](Var a, Var) { return cast(isnan(a), int64); }},
  };
}

/// Activations, of which the slopes are written.
inline std::vector<std::pair<std::string, MakePointwise>> activations_with_slopes() {
  using Var = const Variable&;
  return {
      {"relu", [](Var a, Var) { return relu(a); }},
      {"gelu", [](Var a, Var) { return gelu(a); }},
      {"gelu by tanh", [](Var a, Var) { return gelu(a, GeluApproximation::tanh); }},
      {"silu", [](Var a, Var) { return silu(a); }},
      {"mish", [](Var a, Var) { return mish(a); }},
      {"elu", [](Var a, Var) { return elu(a, 0.7); }},
      {"celu", [](Var a, Var) { return celu(a, 0.7); }},
      {"selu", [](Var a, Var) { return selu(a); }},
  };
}

/// All of them on x [batch, 2], whose columns are the operands, by name. In the results, [batch], numbers
/// stand for NaN and for infinities, so that they can be compared.
inline std::vector<std::pair<std::string, Variable>> pointwise_trees(const Variable& x) {
  std::vector<std::pair<std::string, Variable>> trees;
  const auto column = [](const Variable& of, int64_t i) { return squeeze(slice(of, 1, i, i + 1), 1); };
  const Variable a = column(x, 0), b = column(x, 1);
  for (const auto& [name, make] : pointwise_functions())
    trees.emplace_back(name, nan_to_num(make(a, b), 9, 10, -10));
  const Variable whole = cast(nan_to_num(x, 4, 9, -7), int64);
  for (const auto& [name, make] : integer_functions())
    trees.emplace_back(name, cast(make(column(whole, 0), column(whole, 1)), float32));
  for (const auto& [name, make] : activations_with_slopes())
    trees.emplace_back("slope of " + name, nan_to_num(sum(make(a, b)).gradient(a), 9, 10, -10));
  return trees;
}

/// All pairs of special points, [81, 2].
inline Tensor special_pairs() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float points[] = {
      -infinity, -3, -1.5F, -0.0F, 0, 0.3F, 2, infinity, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> pairs;
  for (const float a : points)
    for (const float b : points) pairs.insert(pairs.end(), {a, b});
  return tensor_from(pairs, {static_cast<int64_t>(pairs.size()) / 2, 2});
}

}  // namespace espalier::testing
