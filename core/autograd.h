// Gradients as graph construction.
#pragma once
#include "espalier/core/gradient_rule.h"
#include "espalier/core/record.h"

namespace espalier {

/// Adds the gradients of all trainable leaves to the root's record.
GradientRecord& differentiate(const Variable& root);
/// The gradients of parameters as new nodes outside any record. Plans use them, since they compute every
/// value.
std::vector<std::pair<Variable, Variable>> new_parameter_gradients(const Variable& root);
/// The gradients of the ends where y has gradient g, as new nodes outside any record: those that pass through
/// nodes of `between` alone, older ones first. Undefined for an end that y is not made of.
std::vector<Variable> gradients_between(const Variable& y, const Variable& g, std::span<const Variable> ends,
                                        std::span<const Variable> between);
/// The gradients of parameters that the record holds, in the order the parameters were made.
std::vector<std::pair<Variable, Variable>> parameter_gradients(const Variable& root);

// Operations that autograd builds with; defined in ops/, like the operators. They read only the shape of
// `like`, so one tree serves batches of any size.
/// The sum of several variables of one shape.
Variable add_all(const std::vector<Variable>& variables);
/// The same; the first one's buffer takes the result if nothing else needs its value.
Variable add_all_into(Variable first, const std::vector<Variable>& others);
/// `sum`, if that is defined, and the products, which have one form, added up. The products are not computed
/// apart, and `sum` gives its buffer to the result if nothing else needs its value.
Variable sum_of_products(Variable sum, std::span<const GradientProduct> products);
/// `x` repeated to the shape of `like`. A view.
Variable broadcast_like(const Variable& x, const Variable& like);
/// `x` summed down to the shape of `like`, from which it was broadcast.
Variable sum_to_like(const Variable& x, const Variable& like);

}  // namespace espalier
