#include "espalier/executor/training/placeholder_names.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/executor/graph/graph.h"

namespace espalier {

void check_names(const std::vector<Node*>& tree) {
  std::map<std::string, const Node*> placeholders;
  for (const Node* node : tree) {
    const auto* feed = node->op().feed();
    if (!feed || !(*feed)->is_placeholder()) continue;
    const auto [known, added] = placeholders.emplace((*feed)->name(), node);
    if (!added)
      throw DataError(fmt::format("get_executor: two placeholders are named '{}': {} and {}", (*feed)->name(),
                                  line_of(known->second->where), line_of(node->where)));
  }
}

}  // namespace espalier
