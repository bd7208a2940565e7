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

/// Gives each parameter an owner, with the states that belong to it. A state belongs to a parameter if only
/// the new values of that parameter and of its states read it. A state that the new value of no parameter
/// reads belongs to the only parameter that its own new value reads. Each owner gets a range of neighbouring
/// parameters, such that the largest number of bytes of an owner is as small as possible. `roots` are what a
/// step computes; `leaves` are all leaves, in their order in memory.
StateOwners share_out_states(const std::vector<Variable>& updates, const std::vector<Variable>& roots,
                             const std::vector<Variable>& leaves, int replicas);

}  // namespace espalier
