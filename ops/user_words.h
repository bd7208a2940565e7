// What errors call an op that no function is called like.
#pragma once
#include <string>

#include "espalier/core/op.h"

namespace espalier {

/// "'matmul'", "the determinant", "the feed"
std::string in_user_words(const Op& op);

}  // namespace espalier
