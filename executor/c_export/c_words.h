// Words that no parameter of a function in C can have.
#pragma once
#include <string_view>

namespace espalier::c_export {

/// Whether a word is a keyword of C or C++, a macro of a header that code includes, a type of one, or a name
/// that the written code has itself.
bool is_taken_in_c(std::string_view word);

}  // namespace espalier::c_export
