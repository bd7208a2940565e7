// Readers of files need no operation: programs with these lists link without kernels, ops and plans, and no
// node waits for its value.
#include <cstdlib>

#include "espalier/core/backends.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/recompute.h"

namespace espalier {

Backends make_backends() { return {}; }
OpRegistry make_op_registry() { return {}; }

bool& deferring() {
  static thread_local bool on = false;
  return on;
}
ThreadKernels& kernels_here() {
  static thread_local ThreadKernels kernels;
  return kernels;
}
bool wait_for_value(Node&) { return false; }
void compute_waiting(Node&) { std::abort(); }
void compute_all_waiting() {}
void computed_apart(Node&) {}
void last_reader_gone(const Node*, uint32_t) noexcept {}
void take_from_batch(Node&) { std::abort(); }
bool is_recomputed(const Op&) { return false; }

}  // namespace espalier
