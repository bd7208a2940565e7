// StateOwners: which replica keeps the states of which parameter, where replicas share them out (ZeRO stage
// 1; Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// Each parameter that is updated has one owner, which alone keeps its states and computes its next value.
/// Whatever else is assigned (the step of a schedule, the scale of a loss) every replica has.
struct StateOwners {
  int replicas = 1;
  /// The parameters that are updated, in the order in which they lie in an executor's memory.
  std::vector<Variable> parameters;
  /// Replica r owns those from begin[r] to before begin[r + 1]. There may be none.
  std::vector<size_t> begin;
  /// Of parameters and the states that go with them.
  std::map<const Node*, int> owner;
  std::vector<int64_t> parameter_bytes, state_bytes;  ///< that each replica owns
  int64_t shared_bytes = 0;                           ///< of states that all have

  /// -1: every replica has it.
  int of(const Node* leaf) const {
    const auto found = owner.find(leaf);
    return found == owner.end() ? -1 : found->second;
  }
};

/// A state goes with a parameter if nothing but the next values of that parameter, and of states that go with
/// it, is made of it; or, if no parameter is, if that parameter alone goes into it. Owners get parameters
/// side by side, so that the one with most bytes has as few as can be. `roots` are what is computed in a
/// step, and `leaves` all leaves, in the order in which they lie in memory.
StateOwners share_out_states(const std::vector<Variable>& updates, const std::vector<Variable>& roots,
                             const std::vector<Variable>& leaves, int replicas);

}  // namespace espalier
