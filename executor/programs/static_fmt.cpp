// What libfmt consists of, as far as the library calls it: compiled here for programs without shared
// libraries.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// The header declares these as instantiated elsewhere.
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

}  // namespace detail
FMT_END_NAMESPACE
