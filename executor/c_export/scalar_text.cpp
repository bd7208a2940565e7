#include "espalier/executor/c_export/scalar_text.h"

#include <algorithm>
#include <cctype>

namespace espalier::c_export {

namespace {

enum Kinds : unsigned { reals = 1, integers = 2, bools = 4, numbers = 3, all = 7 };

/// A formula: %0, %1 and %2 are the operands, T the type of the operands, U its unsigned one, ~ the suffix of
/// the literals and functions of a real type.
struct Formula {
  std::string_view op;
  unsigned kinds;
  std::string_view text;
};

constexpr Formula formulas[] = {
    {"add", reals, "%0 + %1"},
    {"add", integers, "(T)((U)%0 + (U)%1)"},
    {"add_all", reals, "%0 + %1"},
    {"add_all", integers, "(T)((U)%0 + (U)%1)"},
    {"subtract", reals, "%0 - %1"},
    {"subtract", integers, "(T)((U)%0 - (U)%1)"},
    {"multiply", reals, "%0 * %1"},
    {"multiply", integers, "(T)((U)%0 * (U)%1)"},
    {"divide", reals, "%0 / %1"},
    {"divide", integers, "%1 == 0 ? 0 : %1 == -1 ? (T)(0 - (U)%0) : %0 / %1"},
    {"floor_divide", reals, "floored_quotient~(%0, %1)"},
    {"floor_divide", integers,
     "%1 == 0 ? 0 : %1 == -1 ? (T)(0 - (U)%0) : %0 / %1 - (%0 % %1 != 0 && (%0 < 0) != (%1 < 0))"},
    {"remainder", reals, "floored_rest~(%0, %1)"},
    {"remainder", integers,
     "%1 == 0 || %1 == -1 ? 0 : %0 % %1 + (%0 % %1 != 0 && (%0 < 0) != (%1 < 0) ? %1 : 0)"},
    {"fmod", reals, "fmod~(%0, %1)"},
    {"fmod", integers, "%1 == 0 || %1 == -1 ? 0 : %0 % %1"},
    {"power", reals, "pow~(%0, %1)"},
    {"negative", reals, "-%0"},
    {"negative", integers, "(T)(0 - (U)%0)"},
    {"square", reals, "%0 * %0"},
    {"square", integers, "(T)((U)%0 * (U)%0)"},
    {"cube", reals, "%0 * %0 * %0"},
    {"abs", reals, "fabs~(%0)"},
    {"abs", integers, "%0 < 0 ? (T)(0 - (U)%0) : %0"},
    {"sign", numbers, "(T)(%0 > 0 ? 1 : %0 < 0 ? -1 : %0)"},
    {"maximum", numbers, "%0 > %1 || %0 != %0 ? %0 : %1"},
    {"minimum", numbers, "%0 < %1 || %0 != %0 ? %0 : %1"},
    {"clamp_min", numbers, "%0 > %1 || %0 != %0 ? %0 : %1"},
    {"clamp_max", numbers, "%0 < %1 || %0 != %0 ? %0 : %1"},
    {"saturate_min", reals, "%0 > %1 || %0 != %0 ? %0 : %1"},
    {"saturate_max", reals, "%0 < %1 || %0 != %0 ? %0 : %1"},
    {"floor", reals, "floor~(%0)"},
    {"ceil", reals, "ceil~(%0)"},
    {"round", reals, "rint~(%0)"},
    {"trunc", reals, "trunc~(%0)"},
    {"heaviside", reals, "%0 == 0 ? %1 : (T)(%0 > 0)"},
    {"exp", reals, "exp~(%0)"},
    {"exp2", reals, "exp2~(%0)"},
    {"expm1", reals, "expm1~(%0)"},
    {"log", reals, "log~(%0)"},
    {"log1p", reals, "log1p~(%0)"},
    {"log2", reals, "log2~(%0)"},
    {"log10", reals, "log10~(%0)"},
    {"sqrt", reals, "sqrt~(%0)"},
    {"rsqrt", reals, "1.0~ / sqrt~(%0)"},
    {"sin", reals, "sin~(%0)"},
    {"cos", reals, "cos~(%0)"},
    {"tan", reals, "tan~(%0)"},
    {"asin", reals, "asin~(%0)"},
    {"acos", reals, "acos~(%0)"},
    {"atan", reals, "atan~(%0)"},
    {"atan2", reals, "atan2~(%0, %1)"},
    {"sinh", reals, "sinh~(%0)"},
    {"cosh", reals, "cosh~(%0)"},
    {"tanh", reals, "tanh~(%0)"},
    {"asinh", reals, "asinh~(%0)"},
    {"acosh", reals, "acosh~(%0)"},
    {"atanh", reals, "atanh~(%0)"},
    {"hypot", reals, "hypot~(%0, %1)"},
    {"erf", reals, "erf~(%0)"},
    {"erfc", reals, "erfc~(%0)"},
    {"relu", reals, "%0 < 0 ? 0 : %0"},
    {"relu_gradient", reals, "%1 > 0 ? %0 : 0"},
    {"leaky_relu", reals, "%0 > 0 ? %0 : %0 * %1"},
    {"elu", reals, "%0 > 0 ? %0 : %1 * expm1~(%0)"},
    {"elu_slope", reals, "%0 > 0 ? 1 : %1 * exp~(%0)"},
    {"celu", reals, "%0 > 0 ? %0 : %1 * expm1~(%0 / %1)"},
    {"celu_slope", reals, "%0 > 0 ? 1 : exp~(%0 / %1)"},
    {"selu", reals, "%0 > 0 ? 1.05070098735548049~ * %0 : 1.75809934084737685~ * expm1~(%0)"},
    {"selu_slope", reals, "%0 > 0 ? 1.05070098735548049~ : 1.75809934084737685~ * exp~(%0)"},
    {"softshrink", reals, "%0 > %1 ? %0 - %1 : %0 < -%1 ? %0 + %1 : %0 * 0"},
    {"hardshrink", reals, "%0 >= -%1 && %0 <= %1 ? 0 : %0"},
    {"hardsigmoid", reals, "((%0 < -3 ? -3 : %0 > 3 ? 3 : %0) + 3) / 6"},
    {"hardswish", reals, "%0 >= 3 ? %0 : %0 <= -3 ? 0 : %0 * ((%0 + 3) / 6)"},
    {"softsign", reals, "%0 / (1 + fabs~(%0))"},
    {"tanhshrink", reals, "%0 - tanh~(%0)"},
    {"softplus", reals, "((%0 * %1 < 0 ? 0 : %0 * %1) + log1p~(exp~(-fabs~(%0 * %1)))) / %1"},
    {"log_sigmoid", reals, "(%0 > 0 ? 0 : %0) - log1p~(exp~(-fabs~(%0)))"},
    {"sigmoid", reals, "sigmoid~(%0)"},
    {"gelu", reals, "0.5~ * %0 * erfc~(%0 * -0.707106781186547524~)"},
    {"gelu_gradient", reals,
     "%0 * (0.5~ * erfc~(%1 * -0.707106781186547524~) + %1 * 0.398942280401432678~ * exp~(%1 * %1 * -0.5~))"},
    {"gelu_tanh", reals, "%0 * sigmoid~(1.59576912160573071~ * (%0 + 0.044715~ * %0 * %0 * %0))"},
    {"gelu_tanh_slope", reals, "gelu_tanh_slope~(%0)"},
    {"mish", reals, "mish~(%0)"},
    {"mish_slope", reals, "mish_slope~(%0)"},
    {"lgamma", reals, "lgamma~(%0)"},
    {"silu", reals, "%0 * sigmoid~(%0)"},
    {"silu_slope", reals, "sigmoid~(%0) * (1 + %0 * sigmoid~(-%0))"},
    {"equal", all, "(unsigned char)(%0 == %1)"},
    {"not_equal", all, "(unsigned char)(%0 != %1)"},
    {"less", all, "(unsigned char)(%0 < %1)"},
    {"less_equal", all, "(unsigned char)(%0 <= %1)"},
    {"greater", all, "(unsigned char)(%0 > %1)"},
    {"greater_equal", all, "(unsigned char)(%0 >= %1)"},
    {"isnan", reals, "(unsigned char)(%0 != %0)"},
    {"isfinite", reals, "(unsigned char)(%0 - %0 == 0)"},
    {"isinf", reals, "(unsigned char)(%0 == %0 && %0 - %0 != 0)"},
    {"isposinf", reals, "(unsigned char)(%0 > 0 && %0 - %0 != 0)"},
    {"isneginf", reals, "(unsigned char)(%0 < 0 && %0 - %0 != 0)"},
    {"logical_and", all, "(unsigned char)(%0 != 0 && %1 != 0)"},
    {"logical_or", all, "(unsigned char)(%0 != 0 || %1 != 0)"},
    {"logical_xor", all, "(unsigned char)((%0 != 0) != (%1 != 0))"},
    {"logical_not", all, "(unsigned char)(%0 == 0)"},
    {"where", all, "%0 ? %1 : %2"},
};

void replace(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

void replace_word(std::string& text, char word, std::string_view with) {
  const auto part = [&](size_t at) {
    return at < text.size() && (std::isalnum(text[at]) || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += 1)
    if (!part(at + 1) && (at == 0 || !part(at - 1))) {
      text.replace(at, 1, with);
      at += with.size() - 1;
    }
}

std::string of_type(std::string_view formula, DType dtype) {
  std::string text(formula);
  replace(text, "~", dtype == DType::float32 ? "f" : "");
  replace_word(text, 'T', c_type(dtype));
  if (!is_real(dtype)) replace_word(text, 'U', dtype == DType::int32 ? "uint32_t" : "uint64_t");
  return text;
}

/// What formulas call that is not in math.h.
struct OwnFunction {
  std::string_view name, calls, text;
};
constexpr OwnFunction own_functions[] = {
    {"sigmoid~", "",
     "static T sigmoid~(T x) {\n"
     "  const T e = exp~(-fabs~(x));\n"
     "  return (x < 0 ? e : 1) / (1 + e);\n"
     "}\n"},
    {"floored_rest~", "",
     "static T floored_rest~(T a, T b) {\n"
     "  const T rest = fmod~(a, b);\n"
     "  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;\n"
     "}\n"},
    {"floored_quotient~", "",
     "static T floored_quotient~(T a, T b) {\n"
     "  const T rest = fmod~(a, b);\n"
     "  const T exact = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0), below = "
     "floor~(exact);\n"
     "  if (b == 0) return a / b;\n"
     "  if (exact == 0) return copysign~(0, a / b);\n"
     "  return exact - below > 0.5~ ? below + 1 : below;\n"
     "}\n"},
    {"mish~", "",
     "static T mish~(T x) {\n"
     "  const T e = exp~(x > 40 ? 40 : x), n = e * (e + 2), part = n / (n + 2);\n"
     "  return part == 0 ? 0 : x * part;\n"
     "}\n"},
    {"mish_slope~", "",
     "static T mish_slope~(T x) {\n"
     "  const T inside = x > 40 ? 40 : x, e = exp~(inside), n = e * (e + 2), inverse = 1 / (n + 2);\n"
     "  const T rise = 4 * (e * inverse) * ((e + 1) * inverse);\n"
     "  return n * inverse + (rise == 0 ? 0 : inside * rise);\n"
     "}\n"},
    {"gelu_tanh_slope~", "sigmoid~",
     "static T gelu_tanh_slope~(T x) {\n"
     "  const T part = sigmoid~(1.59576912160573071~ * (x + 0.044715~ * x * x * x));\n"
     "  return part + x * part * (1 - part) * 1.59576912160573071~ * (1 + 0.134145~ * x * x);\n"
     "}\n"},
};

void add_function(std::string_view name, DType dtype, Helpers& helpers) {
  for (const OwnFunction& function : own_functions) {
    if (function.name != name) continue;
    if (!function.calls.empty()) add_function(function.calls, dtype, helpers);
    helpers.add(of_type(name, dtype), of_type(function.text, dtype));
  }
}

unsigned kind_of(DType dtype) { return is_real(dtype) ? reals : dtype == DType::boolean ? bools : integers; }

const char* saturated =
    "static T saturated_T_F(F x) {\n"
    "  if (x != x) return 0;\n"
    "  return x <= LOW ? MIN : x >= HIGH ? MAX : (T)x;\n"
    "}\n";

std::string cast_text(DType from, DType to, const std::string& x, Helpers& helpers) {
  if (from == to) return x;
  if (to == DType::boolean) return fmt::format("(unsigned char)({} != 0)", x);
  if (!is_real(from) || is_real(to)) return fmt::format("({}){}", c_type(to), x);
  const bool wide = to == DType::int64;
  const std::string name = fmt::format("saturated_{}_{}", c_type(to), c_type(from));
  std::string text = saturated;
  replace(text, "saturated_T_F", name);
  replace(text, "LOW", fmt::format("({})-{}.0", c_type(from), wide ? "9223372036854775808" : "2147483648"));
  replace(text, "HIGH", fmt::format("({}){}.0", c_type(from), wide ? "9223372036854775808" : "2147483648"));
  replace(text, "MIN", wide ? "INT64_MIN" : "INT32_MIN");
  replace(text, "MAX", wide ? "INT64_MAX" : "INT32_MAX");
  replace_word(text, 'F', c_type(from));
  replace_word(text, 'T', c_type(to));
  helpers.add(name, text);
  return fmt::format("{}({})", name, x);
}

}  // namespace

std::optional<std::string> scalar_text(std::string_view op, DType from, DType to,
                                       std::span<const std::string> operands, Helpers& helpers) {
  if (op == "cast") return cast_text(from, to, operands[0], helpers);
  const auto found = std::ranges::find_if(
      formulas, [&](const Formula& formula) { return formula.op == op && (formula.kinds & kind_of(from)); });
  if (found == std::end(formulas)) return std::nullopt;
  for (const OwnFunction& function : own_functions)
    if (const size_t at = found->text.find(fmt::format("{}(", function.name));
        at != std::string_view::npos &&
        (at == 0 || (!std::isalnum(found->text[at - 1]) && found->text[at - 1] != '_')))
      add_function(function.name, from, helpers);
  std::string text = of_type(found->text, from);
  for (size_t k = 0; k < operands.size(); ++k) {
    const bool plain =
        std::ranges::all_of(operands[k], [](char c) { return std::isalnum(c) || c == '_' || c == '.'; });
    replace(text, fmt::format("%{}", k), plain ? operands[k] : fmt::format("({})", operands[k]));
  }
  return text;
}

std::vector<std::string_view> scalar_ops() {
  std::vector<std::string_view> ops{"cast"};
  for (const Formula& formula : formulas)
    if (ops.back() != formula.op) ops.push_back(formula.op);
  return ops;
}

}  // namespace espalier::c_export
