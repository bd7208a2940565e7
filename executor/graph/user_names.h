// What errors call a node: ops within functions by the functions that users call.
#pragma once
#include <string>

#include "espalier/executor/graph/graph.h"

namespace espalier {

/// "'matmul' (digits.cpp:17)", "the feed (digits.cpp:12)", "'subtract' (in BatchNorm, digits.cpp:20)"
std::string in_user_words(const GraphNode& node);

}  // namespace espalier
