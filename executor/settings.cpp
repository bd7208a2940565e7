#include "espalier/executor/settings.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/tensor.h"

namespace espalier {

namespace {

bool is_scalar_state(const LeafInfo& leaf) {
  const Op& op = leaf.leaf.node()->op();
  return !is_trainable(op) && leaf.leaf.rank() == 0 && leaf.leaf.dtype() != DType::boolean;
}

}  // namespace

std::map<std::string, double> scalar_states(const Executor& executor, std::source_location where) {
  return located(where, [&] {
    std::map<std::string, double> states;
    for (const LeafInfo& leaf : executor.leaves(where))
      if (is_scalar_state(leaf)) states.emplace(leaf.name, leaf.leaf.item(where));
    return states;
  });
}

void set_scalar_state(const Executor& executor, std::string_view name, double value,
                      std::source_location where) {
  located(where, [&] {
    if (!std::isfinite(value) || value < 0)
      throw Error(
          fmt::format("set_scalar_state: '{}' cannot be {}; it is finite and not negative", name, value));
    bool found = false;
    std::set<std::string> names;  // the states of several parameters may have one
    for (const LeafInfo& leaf : executor.leaves(where)) {
      if (!is_scalar_state(leaf)) continue;
      names.insert(leaf.name);
      if (leaf.name != name) continue;
      set_value(leaf.leaf, full({}, value, leaf.leaf.dtype()), where);
      found = true;
    }
    if (!found)
      throw Error(fmt::format("set_scalar_state: there is no scalar '{}'; the executor has {}", name,
                              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  });
}

}  // namespace espalier
