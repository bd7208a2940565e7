// Comparisons, logic and bits.
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// A comparison of two operands, of any type that has an order.
template <Variable (*compare)(const Operand&, const Operand&)>
Outputs compared(FileNode& node) {
  return {compare(computable(node[0]), computable(second_operand(node)))};
}
template <Variable (*combine)(const Operand&, const Operand&)>
Outputs combined(FileNode& node) {
  return {computed([](const Variable& a, const Variable& b) { return combine(a, b); }, node[0], node[1])};
}

Outputs infinite(FileNode& node) {
  const bool positive = node.integer("detect_positive", 1) != 0,
             negative = node.integer("detect_negative", 1) != 0;
  const Variable& x = node[0];
  if (positive && negative) return {isinf(x)};
  if (positive) return {isposinf(x)};
  if (negative) return {isneginf(x)};
  return {logical_and(isinf(x), isfinite(x))};
}

}  // namespace

void add_comparisons(Registry& all) {
  all.add("Equal", 1, compared<equal>);
  all.add("Less", 1, compared<less>);
  all.add("LessOrEqual", 12, compared<less_equal>);
  all.add("Greater", 1, compared<greater>);
  all.add("GreaterOrEqual", 12, compared<greater_equal>);
  all.add("And", 1, [](FileNode& n) { return Outputs{logical_and(n[0], second_operand(n))}; });
  all.add("Or", 1, [](FileNode& n) { return Outputs{logical_or(n[0], second_operand(n))}; });
  all.add("Xor", 1, [](FileNode& n) { return Outputs{logical_xor(n[0], second_operand(n))}; });
  all.add("Not", 1, [](FileNode& n) { return Outputs{logical_not(n[0])}; });
  all.add("BitwiseAnd", 18, combined<bitwise_and>);
  all.add("BitwiseOr", 18, combined<bitwise_or>);
  all.add("BitwiseXor", 18, combined<bitwise_xor>);
  all.add("BitwiseNot", 18,
          [](FileNode& n) { return Outputs{computed([](const auto& x) { return bitwise_not(x); }, n[0])}; });
  all.add("IsNaN", 9, [](FileNode& n) { return Outputs{isnan(n[0])}; });
  all.add("IsInf", 10, infinite);
  all.add("Where", 9, [](FileNode& n) { return Outputs{where(n[0], n[1], n[2])}; });
}

}  // namespace espalier::onnx
