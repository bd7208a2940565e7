#include "espalier/ops/derivatives.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

void check_defined(std::string_view function, const Variable& v, std::string_view what) {
  if (!v.defined()) throw Error(fmt::format("{}: {} is an undefined Variable", function, what));
}

/// Throws unless `v` goes with `like`.
void check_like(std::string_view function, const Variable& v, std::string_view what, const Variable& like) {
  if (!(v.shape() == like.shape()))
    throw ShapeError(fmt::format("{}: the {} of shape {} is not of {}", function, what, v.shape().str(),
                                 like.shape().str()));
  if (v.dtype() != like.dtype())
    throw TypeError(
        fmt::format("{}: the {} is {}, not {}", function, what, name(v.dtype()), name(like.dtype())));
}

/// The sum whose gradients are asked for.
Variable weighed_sum(std::string_view function, const Variable& y, const Variable& cotangent) {
  if (!cotangent.defined()) return sum(y);
  check_like(function, cotangent, "cotangent", y);
  return sum(y * cotangent);
}

Shape joined(const Shape& a, const Shape& b) {
  Dims dims = a.dims();
  dims.append(b.begin(), b.end());
  return Shape(std::move(dims));
}

/// One row for each element of y.
Variable rows_of_jacobian(std::string_view function, const Variable& y, const Variable& x) {
  if (has_open_axes(y))
    throw UnsupportedError(
        fmt::format("{}: a size of {} is open, and each element takes a backward pass of its own", function,
                    y.shape().str()));
  const Variable elements = flatten(y);
  const int64_t count = elements.shape()[0];
  std::vector<Variable> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(slice(elements, 0, i, i + 1).gradient(x));
  if (rows.empty()) return zeros(joined({0}, x.shape()), x.dtype()).to(x.device());
  return stack(rows);
}

}  // namespace

std::vector<Variable> gradients(const Variable& y, const std::vector<Variable>& xs, const Variable& cotangent,
                                std::source_location where) {
  constexpr std::string_view function = "gradients";
  const CallScope scope(where, function);
  return located(where, [&] {
    check_defined(function, y, "y");
    const Variable total = weighed_sum(function, y, cotangent);
    std::vector<Variable> result;
    for (const Variable& x : xs) {
      check_defined(function, x, "an x");
      result.push_back(total.gradient(x, where));
    }
    return result;
  });
}

Variable jacobian(const Variable& y, const Variable& x, std::source_location where) {
  constexpr std::string_view function = "jacobian";
  const CallScope scope(where, function);
  return located(where, [&] {
    check_defined(function, y, "y");
    check_defined(function, x, "x");
    return reshape(rows_of_jacobian(function, y, x), joined(y.shape(), x.shape()));
  });
}

Variable hessian(const Variable& y, const Variable& x, std::source_location where) {
  constexpr std::string_view function = "hessian";
  const CallScope scope(where, function);
  return located(where, [&] {
    check_defined(function, y, "y");
    check_defined(function, x, "x");
    if (y.shape().elements() != 1)
      throw ShapeError(fmt::format("{}: y of shape {} has not one element", function, y.shape().str()));
    const Variable g = y.gradient(x, where);
    return reshape(rows_of_jacobian(function, g, x), joined(x.shape(), x.shape()));
  });
}

Variable directional_derivative(const Variable& y, const Variable& x, const Variable& tangent,
                                std::source_location where) {
  constexpr std::string_view function = "directional_derivative";
  const CallScope scope(where, function);
  return located(where, [&] {
    for (const auto& [v, what] : {std::pair(&y, "y"), {&x, "x"}, {&tangent, "the tangent"}})
      check_defined(function, *v, what);
    check_like(function, tangent, "tangent", x);
    const Variable cotangent = zeros_like(y);
    return sum(sum(y * cotangent).gradient(x, where) * tangent).gradient(cotangent, where);
  });
}

}  // namespace espalier
