// Sums of a function of each element, or of products of two.
#pragma once
#include "espalier/core/function_ref.h"
#include "espalier/core/variable.h"

namespace espalier {

/// Of x: x^2, |x|, or x but 0 for NaN.
enum class Mapping { square, magnitude, number };

/// sum(f(x), axes, keep_dims), where `f` is the mapping as a function of Variables. An eager sum on the CPU
/// reads x once, and the mapped elements have no memory. For float32 and float64.
Variable sum_mapped(Mapping mapping, FunctionRef<Variable(const Variable&)> f, const Variable& x,
                    const Axes& axes, bool keep_dims);

/// sum(x · y, axes) for operands of one type. An eager sum on the CPU over all axes, or over the last one, of
/// operands of one shape reads both once, and the products have no memory.
Variable sum_of_pairs(const Variable& x, const Variable& y, const Axes& axes);

}  // namespace espalier
