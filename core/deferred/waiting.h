// The nodes of a thread that wait for their values.
#pragma once
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/node.h"

namespace espalier {

/// Whether nodes that this thread makes wait.
bool& deferring();
DeferredOptions& deferred_options();

/// Adds a node to those that wait, unless its op cannot.
bool wait_for_value(Node& node);
/// Is told of each node that waits and of which one reference is left: perhaps nothing reads it any more. It
/// may be deleted meanwhile.
void last_reader_gone(const Node* node, uint32_t place) noexcept;
/// `op` applied to a leaf: a node that waits already, or a new one. So nodes that are computed together read
/// one part of a parameter.
Variable waiting_part(const OpPtr& op, const Variable& leaf);
/// Notes that a node does not wait any more: it is computed without the others.
void computed_apart(Node& node);
/// Computes a node that waits, with all others of this thread.
void compute_waiting(Node& node);
/// Computes all that waits in this thread: before a leaf is assigned.
void compute_all_waiting();
/// The value of a node from the batch that has computed it.
void take_from_batch(Node& node);

/// Nodes made while it lives are computed at once.
class ComputeAtOnce {
 public:
  ComputeAtOnce() : before_(std::exchange(deferring(), false)) {}
  ~ComputeAtOnce() { deferring() = before_; }
  ComputeAtOnce(const ComputeAtOnce&) = delete;
  ComputeAtOnce& operator=(const ComputeAtOnce&) = delete;

 private:
  bool before_;
};

/// Of the kernels that nodes of this thread run.
struct ThreadKernels {
  int64_t run = 0;
  bool find_nan = false;  ///< their results are looked at: FindNan
};
ThreadKernels& kernels_here();
inline int64_t& kernels_run_here() { return kernels_here().run; }

}  // namespace espalier
