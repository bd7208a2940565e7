// The list of what plan files say of ops: tests/figures/plan_ops.txt, a name and its attributes in each line.
#pragma once
#include <string>
#include <vector>

#include "espalier/core/op.h"

namespace espalier::testing {

struct ListedOp {
  std::string name;
  Attributes attributes;
};
const std::vector<ListedOp>& listed_ops();

/// As it stands in the list.
std::string line_of(std::string_view name, const Attributes& attributes);

/// Fails unless the list has the op with attributes of the same names and kinds.
void check_listed(const Op& op);

}  // namespace espalier::testing
