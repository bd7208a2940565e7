// Derivatives of several Variables at once, and of functions with several outputs.
#pragma once
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

// All are trees like any other: they can be differentiated again, and frozen. Each throws Error if y is not
// made of x, and TypeError unless both are of reals.

/// The gradients of Σ cotangent · y with respect to each of these Variables: the product of a vector and the
/// Jacobian matrix. Without a cotangent it is ones. ShapeError and TypeError unless it is as y is.
std::vector<Variable> gradients(const Variable& y, const std::vector<Variable>& xs,
                                const Variable& cotangent = {},
                                std::source_location where = std::source_location::current());
/// ∂y/∂x, of y's axes and then x's. It takes a backward pass for each element of y; where rows of a batch do
/// not depend on each other, gradients of sums over the batch are faster. UnsupportedError if a size of y is
/// open.
Variable jacobian(const Variable& y, const Variable& x,
                  std::source_location where = std::source_location::current());
/// ∂²y/∂x² of a scalar y, of x's axes twice. ShapeError unless y has one element, UnsupportedError as above.
Variable hessian(const Variable& y, const Variable& x,
                 std::source_location where = std::source_location::current());
/// Σ ∂y/∂x · tangent, of y's shape: the derivative in a direction, which is of x's shape and dtype
/// (ShapeError, TypeError). By two backward passes, the second of which is that of the first, a linear
/// function of the cotangent.
Variable directional_derivative(const Variable& y, const Variable& x, const Variable& tangent,
                                std::source_location where = std::source_location::current());

}  // namespace espalier
