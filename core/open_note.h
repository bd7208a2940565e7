// What errors add where an open axis meets a size that is known.
#pragma once
#include <cstdint>
#include <string>

#include "espalier/core/shape.h"

namespace espalier {

/// The end of a message about two sizes that should be equal: empty unless one of them is that of an open
/// axis.
std::string open_note(int64_t a, int64_t b);
/// The same of two shapes: for the first sizes, counted from the end, that differ.
std::string open_note(const Shape& a, const Shape& b);

}  // namespace espalier
