// Layers against what PyTorch's compute: the inputs, parameters and losses of figures/layers.py.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/autograd.h"
#include "espalier/nn/module.h"
#include "espalier/ops/ops.h"
#include "figures/layers.h"
#include "testing.h"

namespace espalier::testing {

/// ((a · i) mod b − b / 2) / size for the elements i.
inline Tensor figure_numbers(const Shape& shape, int64_t a, int64_t b, double size) {
  Tensor values(shape, float64);
  int64_t i = 0;
  for (double& value : values.span<double>()) value = static_cast<double>((a * i++) % b - b / 2) / size;
  return values;
}

inline std::vector<std::pair<std::string, Variable>> parameters_by_name(const nn::Module& module) {
  auto list = module.parameters();
  std::ranges::sort(list, {}, [](const auto& named) { return named.first; });
  return list;
}

inline void give_figure_values(const nn::Module& module) {
  int64_t k = 0;
  for (const auto& [path, p] : parameters_by_name(module))
    set_value(p, figure_numbers(p.shape(), 31 + 2 * k++, 17, 16).to(p.dtype()));
}

inline Variable weighed(const Variable& y) { return sum(y * figure_numbers(y.shape(), 7, 11, 8)); }

/// Compares values, and gradients of `loss` by the module's parameters, with the figures of that name.
inline void check_layer_figures(const std::string& name, const std::vector<Variable>& values,
                                const Variable& loss, const nn::Module& module, double tolerance = 1e-12) {
  std::vector<double> found;
  const auto add = [&](const Tensor& value) {
    const Tensor wide = value.to(float64).contiguous_copy();
    for (const double v : wide.span<double>()) found.push_back(v);
  };
  for (const Variable& v : values) add(v.value());
  for (const auto& [path, p] : parameters_by_name(module)) add(loss.gradient(p).value());
  const std::vector<double>& expected = layer_figures.at(name);
  BOOST_TEST_REQUIRE(found.size() == expected.size());
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  BOOST_TEST(largest < tolerance, name << " differs by " << largest);
}

}  // namespace espalier::testing
