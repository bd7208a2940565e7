#include "espalier/executor/graph/user_names.h"

#include "espalier/ops/user_words.h"

namespace espalier {

std::string in_user_words(const GraphNode& node) {
  const std::string words = in_user_words(*node.op);
  return words + node.where.place(words, line_of(node.where));
}

}  // namespace espalier
