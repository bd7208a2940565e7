#include "espalier/executor/c_export/c_words.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace espalier::c_export {

namespace {

/// In alphabetical order.
constexpr std::string_view words[] = {
    // Of C up to C23 and C++ up to C++23.
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "char16_t",
    "char32_t",
    "char8_t",
    "class",
    "co_await",
    "co_return",
    "co_yield",
    "compl",
    "concept",
    "const",
    "const_cast",
    "consteval",
    "constexpr",
    "constinit",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "requires",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "typeof",
    "typeof_unqual",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq"};

/// Macros and types without a pattern, of math.h, stdint.h, and of headers that those may include or that a
/// program has included before: stdbool.h, stddef.h, errno.h, complex.h, and of compilers.
constexpr std::string_view macros[] = {"AT",
                                       "DOMAIN",
                                       "HUGE",
                                       "I",
                                       "INFINITY",
                                       "MAXFLOAT",
                                       "NAN",
                                       "NULL",
                                       "OVERFLOW",
                                       "PLOSS",
                                       "SING",
                                       "SNAN",
                                       "TLOSS",
                                       "UNDERFLOW",
                                       "WCHAR_MAX",
                                       "WCHAR_MIN",
                                       "WINT_MAX",
                                       "WINT_MIN",
                                       "complex",
                                       "double_t",
                                       "errno",
                                       "float_t",
                                       "fpclassify",
                                       "i",
                                       "imaginary",
                                       "isfinite",
                                       "isgreater",
                                       "isgreaterequal",
                                       "isinf",
                                       "isless",
                                       "islessequal",
                                       "islessgreater",
                                       "isnan",
                                       "isnormal",
                                       "isunordered",
                                       "linux",
                                       "max_align_t",
                                       "math_errhandling",
                                       "offsetof",
                                       "random_seed",
                                       "random_stream",
                                       "signbit",
                                       "signgam",
                                       "unix"};

/// Whether math.h or stdint.h have macros or types that begin so; upper-case words that begin with INT, UINT
/// and the like are limits.
bool has_a_macros_prefix(std::string_view word) {
  const auto capital = [&](size_t at) {
    return word.size() > at && (std::isupper(static_cast<unsigned char>(word[at])) || word[at] == '_' ||
                                std::isdigit(static_cast<unsigned char>(word[at])));
  };
  for (const std::string_view prefix :
       {"M_", "FP_", "INT", "UINT", "HUGE_VAL", "SNAN", "PTRDIFF_", "SIZE_M", "SIG_ATOMIC_", "X_TLOSS"})
    if (word.starts_with(prefix) && (capital(prefix.size()) || word == prefix)) return true;
  return word.ends_with("_t") && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == word.npos;
}

}  // namespace

bool is_taken_in_c(std::string_view word) {
  return std::ranges::count(words, word) > 0 || std::ranges::count(macros, word) > 0 ||
         has_a_macros_prefix(word);
}

}  // namespace espalier::c_export
