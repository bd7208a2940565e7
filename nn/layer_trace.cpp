#include "espalier/nn/layer_trace.h"

#include "espalier/core/node.h"

namespace espalier::nn {

namespace {

thread_local LayerTrace* current_trace = nullptr;

}  // namespace

LayerTrace::LayerTrace() : scope_(current_trace, this) {}

LayerTrace* LayerTrace::current() { return current_trace; }

size_t LayerTrace::begin(const LayerState& layer) {
  for (size_t i = calls_.size(); i-- > 0;)
    if (!calls_[i].output.defined()) calls_[i].contains = true;
  calls_.push_back({&layer, Node::next_id()});
  return calls_.size() - 1;
}

void LayerTrace::end(size_t call, const Variable& output) { calls_[call].output = output; }

}  // namespace espalier::nn
