#include "espalier/executor/sharding/row_growth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "espalier/core/op_names.h"
#include "espalier/executor/sharding/shape_values.h"
#include "espalier/ops/linalg/lu_ops.h"

namespace espalier {

namespace {

int8_t kept(int growth) { return std::abs(growth) < 16 ? static_cast<int8_t>(growth) : unknown_growth; }

/// Whether it adds up elements of its operands.
bool adds_up(const Op& op, const InputSpecs& in) {
  const auto folding = op.folding(in);
  const OpTraits& traits = op.traits();
  return (folding && folding->fold == Fold::sum) || traits.matmul_form || traits.sums_products ||
         traits.sums_over_rows;
}

}  // namespace

bool takes_guards(const Op& op) {
  return std::ranges::any_of(std::array{"add", "subtract", "maximum", "minimum", "where"},
                             [&](const char* name) { return is_op(op, name); });
}
int8_t joint_growth(const Op& op, const std::vector<int8_t>& operands) {
  if (std::ranges::all_of(operands, [](int8_t growth) { return growth == 0; })) return 0;
  if (std::ranges::count(operands, unknown_growth) > 0) return unknown_growth;
  const bool alike = std::ranges::adjacent_find(operands, std::not_equal_to()) == operands.end();
  const OpTraits& traits = op.traits();
  if (operands.size() == 2 && is_op(op, "divide")) return kept(operands[0] - operands[1]);
  if (operands.size() == 2 && (traits.linearity == Linearity::each || traits.matmul_form))
    return kept(operands[0] + operands[1]);
  if (operands.size() == 1 && is_op(op, "square")) return kept(2 * operands[0]);
  if (operands.size() == 1 && (is_op(op, "sqrt") || is_op(op, "rsqrt")))
    return operands[0] % 2 ? unknown_growth : kept(is_op(op, "sqrt") ? operands[0] / 2 : -operands[0] / 2);
  if (operands.size() == 1 && is_op(op, "reciprocal")) return kept(-operands[0]);
  const bool linear = op.is_view() || is_op(op, "cast") || takes_guards(op) ||
                      traits.linearity == Linearity::together ||
                      (traits.linearity == Linearity::first && operands.size() == 1);
  return linear && alike ? operands[0] : unknown_growth;
}

int8_t sum_of_growths(int8_t a, int8_t b) {
  return a == unknown_growth || b == unknown_growth ? unknown_growth : kept(a + b);
}

int8_t growth_over_rows(const Op& op, const InputSpecs& in, int axes) {
  if (axes == 0) return 0;
  if (is_op(op, "prod")) return unknown_growth;
  if (is_op(op, "lu_determinant")) switch (static_cast<DeterminantForm>(attribute<int64_t>(op, "form"))) {
      case DeterminantForm::whole: return unknown_growth;
      case DeterminantForm::log_abs: return growth_of_sum;
      case DeterminantForm::sign: return 0;
    }
  return adds_up(op, in) ? kept(axes * growth_of_sum) : int8_t{0};
}

int8_t growth_of_shapes(const Graph& part, const Graph& other, uint32_t i, BatchSizes sizes) {
  const Spec &few_spec = part.nodes[i].outputs[0], &all_spec = other.nodes[i].outputs[0];
  if (few_spec.shape.elements() != 1 || few_spec != all_spec) return unknown_growth;
  const double few = value_of_shapes(part, i).item(), all = value_of_shapes(other, i).item();
  const double factor = static_cast<double>(sizes.other) / static_cast<double>(sizes.part);
  for (const int power : {1, -1, 2, -2}) {
    const double grown = few * std::pow(factor, power);
    if (std::abs(grown - all) <= 0.01 * std::abs(all))
      return kept(power * growth_of_sum);  // 16 bits are rounded
  }
  return unknown_growth;
}

}  // namespace espalier
