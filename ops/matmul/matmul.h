// The matmul op.
#pragma once
#include "espalier/core/gradient_rule.h"

namespace espalier {

/// A matrix product with operands transposed as `form` says.
OpPtr matmul_op(MatmulForm form);

/// The sum of products of one form, added to the first input if `adds`: inputs [sum,] a, b, a, b, … The first
/// may be a vector, which is added to each row.
OpPtr sum_of_products_op(MatmulForm form, bool adds);
/// That first input in the shape of the sum.
Tensor first_summand(const Tensor& summand, const Shape& all);

/// A product as the gradient of an input of a rule's node; empty if it is added to other parts later.
Variable gradient_part(const GradientRule& rule, size_t input, const Variable& a, const Variable& b,
                       MatmulForm form);

}  // namespace espalier
