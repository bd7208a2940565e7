// Sums of a function of each element.
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

}  // namespace espalier
