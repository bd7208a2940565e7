#include "espalier/executor/graph/user_names.h"

#include <fmt/format.h>

#include <string_view>

#include "espalier/ops/user_words.h"

namespace espalier {

std::string in_user_words(const GraphNode& node) {
  const std::string words = in_user_words(*node.op);
  const std::string_view called = node.where.called();
  const bool inner = !called.empty() && words.find(called) == std::string::npos && !node.op->feed();
  return fmt::format("{} ({}{}{}{})", words, inner ? "in " : "", inner ? called : "", inner ? ", " : "",
                     line_of(node.where));
}

}  // namespace espalier
