#include "espalier/core/error.h"

#include <fmt/format.h>

#include <string_view>

#include "espalier/core/node.h"

namespace espalier {

void Error::locate(const std::source_location& where) {
  if (located_ || where.line() == 0) return;
  // While a library function calls others, the line is that of the user's call.
  const std::source_location& line = build_context().where ? *build_context().where : where;
  // What std::make_shared constructs has the line of a header of the standard library.
  if (std::string_view(line.file_name()).find("/include/c++/") != std::string_view::npos) return;
  message_ += fmt::format(" ({}:{})", line.file_name(), line.line());
  located_ = true;
}

}  // namespace espalier
