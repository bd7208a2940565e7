// Operations on bits.
#include "espalier/ops/functions/bitwise.h"

#include <type_traits>

#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_integers.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

struct Integers {
  template <class T>
  static constexpr bool accepts = std::is_integral_v<T> && !std::is_same_v<T, bool>;
  static constexpr std::string_view names = "integers";
};
struct IntegersAndBools {
  template <class T>
  static constexpr bool accepts = std::is_integral_v<T>;
  static constexpr std::string_view names = "integers and bool";
};

using LogicalXor = FlatBinary<"logical_xor", scalar::LogicalXor, Bools, bool>;
using BitwiseAnd = FlatBinary<"bitwise_and", scalar::BitwiseAnd, IntegersAndBools>;
using BitwiseOr = FlatBinary<"bitwise_or", scalar::BitwiseOr, IntegersAndBools>;
using BitwiseXor = FlatBinary<"bitwise_xor", scalar::BitwiseXor, IntegersAndBools>;
using BitwiseNot = FlatUnary<"bitwise_not", scalar::BitwiseNot, IntegersAndBools>;
using BitwiseLeftShift = FlatBinary<"bitwise_left_shift", scalar::BitwiseLeftShift, Integers>;
using BitwiseRightShift = FlatBinary<"bitwise_right_shift", scalar::BitwiseRightShift, Integers>;

}  // namespace

Variable logical_xor(const Operand& a, const Operand& b) { return apply_binary<LogicalXor>(a, b); }
Variable bitwise_and(const Operand& a, const Operand& b) { return apply_binary<BitwiseAnd>(a, b); }
Variable bitwise_or(const Operand& a, const Operand& b) { return apply_binary<BitwiseOr>(a, b); }
Variable bitwise_xor(const Operand& a, const Operand& b) { return apply_binary<BitwiseXor>(a, b); }
Variable bitwise_not(const Operand& x) { return apply_unary<BitwiseNot>(x); }
Variable bitwise_left_shift(const Operand& a, const Operand& n) {
  return apply_binary<BitwiseLeftShift>(a, n);
}
Variable bitwise_right_shift(const Operand& a, const Operand& n) {
  return apply_binary<BitwiseRightShift>(a, n);
}

void add_bitwise_ops(OpRegistry& ops) {
  ops.add<LogicalXor, BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitwiseLeftShift, BitwiseRightShift>();
}

}  // namespace espalier
