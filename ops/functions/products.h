// Products of vectors, matrices and tensors, as sums over named axes.
#pragma once
#include <cstdint>
#include <source_location>
#include <string_view>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// Einstein's summation, for reals: the equation names the axes of each operand by letters, as "ij,jk->ik";
/// letters that are not behind the arrow are summed over. "..." stands for any leading axes, which are
/// broadcast; a letter that an operand has twice takes its diagonal; axes of size 1 are broadcast. Without an
/// arrow, the result has the axes of "..." and then the letters that occur once, in the order of their codes.
/// Several operands are multiplied in pairs, in the order with the fewest multiplications. Throws Error for
/// an equation that cannot be read, ShapeError where it does not go with the shapes, TypeError.
Variable einsum(std::string_view equation, const std::vector<Variable>& operands,
                std::source_location where = std::source_location::current());

/// Vectors [n] and [m]: all products, [n, m].
Variable outer(const Operand& a, const Operand& b);
/// Vectors of one size: the sum of the products of their elements, a scalar.
Variable dot(const Operand& a, const Operand& b);
/// a [..., n] and b […, n]: sums over the last axes, [..., …]. A scalar multiplies.
Variable inner(const Operand& a, const Operand& b);
/// sum(a · b) along an axis, where both are broadcast.
Variable vecdot(const Operand& a, const Operand& b, int64_t axis = -1);
/// The sum over the last `axes` axes of `a` and the first of `b`, in order; over none: all products. For
/// reals.
Variable tensordot(const Operand& a, const Operand& b, int64_t axes = 2);
/// The sum over the pairs axes_a[i] of `a` and axes_b[i] of `b`; the other axes of `a` come first. For reals.
Variable tensordot(const Operand& a, const Operand& b, const Axes& axes_a, const Axes& axes_b);
/// a × b along an axis of size 3, where both are broadcast.
Variable cross(const Operand& a, const Operand& b, int64_t axis = -1);
/// Kronecker's product: each element of `a` times the whole of `b`, in the place of that element. Axis i has
/// the product of both sizes; the one with fewer axes gets leading ones of size 1.
Variable kron(const Operand& a, const Operand& b);
/// a[..., i] · weight[o, i, j] · b[..., j] summed over i and j, plus bias[o]: [..., o], with equal leading
/// axes. An undefined bias adds nothing.
Variable bilinear(const Operand& a, const Operand& b, const Operand& weight, const Variable& bias = {});

}  // namespace espalier
