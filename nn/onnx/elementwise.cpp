// Arithmetic and elementary functions, element by element.
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// An operator of several operands, from the first on.
template <class F>
Outputs folded(FileNode& node, F&& f) {
  Variable result = node[0];
  for (size_t i = 1; i < node.count(); ++i) result = computed(f, result, node[i]);
  return {result};
}

/// Integers are divided and cut off towards 0.
Variable quotient(const Variable& a, const Variable& b) {
  if (is_real(a.dtype())) return divide(a, b);
  return floor_divide(abs(a), abs(b)) * (sign(a) * sign(b));
}

Outputs power_of(FileNode& node) {
  const Variable &x = node[0], exponent = second_operand(node);
  if (is_real(x.dtype())) return {power(x, cast(exponent, x.dtype()))};
  return {cast(round(power(cast(x, float64), cast(exponent, float64))), x.dtype())};
}

Outputs modulo(FileNode& node) {
  const bool as_in_c = node.integer("fmod", 0) != 0;
  return {
      computed([&](const Variable& a, const Variable& b) { return as_in_c ? fmod(a, b) : remainder(a, b); },
               node[0], node[1])};
}

Outputs clipped_by_attributes(FileNode& node) {
  Variable x = node[0];
  if (node.has("min")) x = clamp_min(x, node.real("min", 0));
  if (node.has("max")) x = clamp_max(x, node.real("max", 0));
  return {x};
}

Outputs clipped(FileNode& node) {
  return {computed(
      [&](const Variable& x) {
        Variable y = x;
        if (node.has(1)) y = maximum(y, computable(node[1]));
        if (node.has(2)) y = minimum(y, computable(node[2]));
        return y;
      },
      node[0])};
}

Outputs mean_of(FileNode& node) {
  Variable total = node[0];
  for (size_t i = 1; i < node.count(); ++i) total = total + node[i];
  return {node.count() == 1 ? total : total / static_cast<double>(node.count())};
}

/// Bits that are shifted; operands are unsigned in the files.
Outputs shifted(FileNode& node) {
  const bool left = node.text("direction", "") == "LEFT";
  return {
      computed([&](const Variable& a,
                   const Variable& b) { return left ? bitwise_left_shift(a, b) : bitwise_right_shift(a, b); },
               node[0], node[1])};
}

Outputs rounded(FileNode& node) { return {round(node[0])}; }

}  // namespace

void add_elementwise(Registry& all) {
  all.add("Add", 1, [](FileNode& n) {
    return Outputs{computed([](const auto& a, const auto& b) { return a + b; }, n[0], second_operand(n))};
  });
  all.add("Sub", 1, [](FileNode& n) {
    return Outputs{computed([](const auto& a, const auto& b) { return a - b; }, n[0], second_operand(n))};
  });
  all.add("Mul", 1, [](FileNode& n) {
    return Outputs{computed([](const auto& a, const auto& b) { return a * b; }, n[0], second_operand(n))};
  });
  all.add("Div", 1, [](FileNode& n) { return Outputs{computed(quotient, n[0], second_operand(n))}; });
  all.add("Pow", 1, power_of);
  all.add("Mod", 10, modulo);
  all.add("Sum", 1,
          [](FileNode& n) { return folded(n, [](const auto& a, const auto& b) { return a + b; }); });
  all.add("Mean", 1, mean_of);
  all.add("Max", 1,
          [](FileNode& n) { return folded(n, [](const auto& a, const auto& b) { return maximum(a, b); }); });
  all.add("Min", 1,
          [](FileNode& n) { return folded(n, [](const auto& a, const auto& b) { return minimum(a, b); }); });
  all.add("Clip", 6, clipped_by_attributes);
  all.add("Clip", 11, clipped);
  all.add("Abs", 1,
          [](FileNode& n) { return Outputs{computed([](const auto& x) { return abs(x); }, n[0])}; });
  all.add("Neg", 1, [](FileNode& n) { return Outputs{computed([](const auto& x) { return -x; }, n[0])}; });
  all.add("Sign", 9,
          [](FileNode& n) { return Outputs{computed([](const auto& x) { return sign(x); }, n[0])}; });
  all.add("Floor", 1, [](FileNode& n) { return Outputs{floor(n[0])}; });
  all.add("Ceil", 1, [](FileNode& n) { return Outputs{ceil(n[0])}; });
  all.add("Round", 11, rounded);
  all.add("Sqrt", 1, [](FileNode& n) { return Outputs{sqrt(n[0])}; });
  all.add("Exp", 1, [](FileNode& n) { return Outputs{exp(n[0])}; });
  all.add("Log", 1, [](FileNode& n) { return Outputs{log(n[0])}; });
  all.add("Reciprocal", 1, [](FileNode& n) { return Outputs{reciprocal(n[0])}; });
  all.add("Erf", 9, [](FileNode& n) {
    if (is_real(n[0].dtype())) return Outputs{erf(n[0])};
    return Outputs{cast(erf(cast(n[0], float64)), n[0].dtype())};
  });
  all.add("Sin", 7, [](FileNode& n) { return Outputs{sin(n[0])}; });
  all.add("Cos", 7, [](FileNode& n) { return Outputs{cos(n[0])}; });
  all.add("Tan", 7, [](FileNode& n) { return Outputs{tan(n[0])}; });
  all.add("Asin", 7, [](FileNode& n) { return Outputs{asin(n[0])}; });
  all.add("Acos", 7, [](FileNode& n) { return Outputs{acos(n[0])}; });
  all.add("Atan", 7, [](FileNode& n) { return Outputs{atan(n[0])}; });
  all.add("Sinh", 9, [](FileNode& n) { return Outputs{sinh(n[0])}; });
  all.add("Cosh", 9, [](FileNode& n) { return Outputs{cosh(n[0])}; });
  all.add("Asinh", 9, [](FileNode& n) { return Outputs{asinh(n[0])}; });
  all.add("Acosh", 9, [](FileNode& n) { return Outputs{acosh(n[0])}; });
  all.add("Atanh", 9, [](FileNode& n) { return Outputs{atanh(n[0])}; });
  all.add("BitShift", 11, shifted);
}

}  // namespace espalier::onnx
