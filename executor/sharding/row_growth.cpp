#include "espalier/executor/sharding/row_growth.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>

#include "espalier/core/op_names.h"

namespace espalier {

bool takes_guards(const Op& op) {
  return std::ranges::any_of(std::array{"add", "subtract", "maximum", "minimum", "where"},
                             [&](const char* name) { return is_op(op, name); });
}
int8_t joint_growth(const Op& op, const std::vector<int8_t>& operands) {
  if (std::ranges::all_of(operands, [](int8_t growth) { return growth == 0; })) return 0;
  if (std::ranges::count(operands, unknown_growth) > 0) return unknown_growth;
  const bool alike = std::ranges::adjacent_find(operands, std::not_equal_to()) == operands.end();
  const auto kept = [](int growth) {
    return std::abs(growth) < 8 ? static_cast<int8_t>(growth) : unknown_growth;
  };
  const OpTraits& traits = op.traits();
  if (operands.size() == 2 && is_op(op, "divide")) return kept(operands[0] - operands[1]);
  if (operands.size() == 2 && (traits.linearity == Linearity::each || traits.matmul_form))
    return kept(operands[0] + operands[1]);
  if (operands.size() == 1 && is_op(op, "square")) return kept(2 * operands[0]);
  if (operands.size() == 1 && is_op(op, "reciprocal")) return kept(-operands[0]);
  const bool linear = op.is_view() || takes_guards(op) || traits.linearity == Linearity::together ||
                      (traits.linearity == Linearity::first && operands.size() == 1);
  return linear && alike ? operands[0] : unknown_growth;
}

bool adds_up(const Op& op, const InputSpecs& in) {
  const auto folding = op.folding(in);
  const OpTraits& traits = op.traits();
  return (folding && folding->fold == Fold::sum) || traits.matmul_form || traits.sums_products ||
         traits.sums_over_rows;
}

}  // namespace espalier
