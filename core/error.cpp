#include "espalier/core/error.h"

#include <fmt/format.h>

#include <string_view>

#include "espalier/core/node.h"

namespace espalier {

void Error::locate(const CallSite& where) {
  if (located_ || where.line() == 0) return;
  // While a library function calls others, the line is that of the user's call.
  const CallSite& line = build_context().where ? *build_context().where : where;
  // What std::make_shared constructs has the line of a header of the standard library.
  if (std::string_view(line.file_name()).find("/include/c++/") != std::string_view::npos) return;
  const std::string text = line.place(message_, fmt::format("{}:{}", line.file_name(), line.line()));
  message_ += text;
  line_size_ = static_cast<uint32_t>(text.size());
  located_ = true;
}

void Error::add(std::string_view text) {
  message_.insert(message_.size() - (located_ ? line_size_ : 0), text);
}

}  // namespace espalier
