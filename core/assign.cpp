// Writing leaves: what optimizers, users and forward passes assign.
#include "espalier/core/device.h"
#include "espalier/core/eval.h"
#include "espalier/core/leaf_use.h"

namespace espalier {

namespace {

/// It has a value again.
void come_home(Node& leaf) noexcept {
  if (!leaf.away.load(std::memory_order_relaxed)) return;
  leaf.rare().elsewhere = {};
  leaf.away.store(false, std::memory_order_release);
}

void replace_value(Node& leaf, const Tensor& value) {
  leaf.outputs[0].value = value;
  come_home(leaf);
  leaf.bound = false;
  leaf.version = Node::next_id();
}

}  // namespace

bool edits_leaf(const Node& assignment) {
  const Node& value = *assignment.inputs[1].node();
  return value.op().traits().edits_input && value.inputs[0].node() == assignment.inputs[0].node();
}

void assign(std::span<const std::pair<Node*, Tensor>> leaves, std::span<Node* const> edits) {
  const std::scoped_lock lock(leaves_mutex());
  std::vector<Tensor> edited;
  for (const Node* edit : edits) {
    Node& leaf = *edit->inputs[0].node();
    ensure_value(leaf);
    const Tensor& value = leaf.outputs[0].value;
    const bool own = !leaf.bound && value.storage().unique() && value.contiguous() &&
                     value.device().type == DeviceType::cpu;
    edited.push_back(own ? value : value.clone());
  }
  for (size_t i = 0; i < edits.size(); ++i) {
    KernelCall call;
    call.where = &edits[i]->where;
    for (const Edge& input : edits[i]->inputs)
      call.inputs.push_back(call.inputs.empty() ? &edited[i] : &input.value());
    call.outputs.push_back(&edited[i]);
    backend(edited[i].device()).run(edits[i]->op(), call);
  }
  for (const auto& [leaf, value] : leaves) replace_value(*leaf, value);
  for (size_t i = 0; i < edits.size(); ++i) replace_value(*edits[i]->inputs[0].node(), edited[i]);
  leaf_assignments().fetch_add(1, std::memory_order_release);
}

void assign(Node& leaf, const Tensor& value) noexcept {
  Tensor before = value;  // is released behind the lock
  const std::scoped_lock lock(leaves_mutex());
  std::swap(leaf.outputs[0].value, before);
  come_home(leaf);
  leaf.bound = false;
  leaf.version = Node::next_id();
  leaf_assignments().fetch_add(1, std::memory_order_release);
}

void assign(std::span<const std::pair<Node*, Tensor>> leaves) noexcept {
  if (leaves.empty()) return;
  const std::scoped_lock lock(leaves_mutex());
  for (const auto& [leaf, value] : leaves) replace_value(*leaf, value);
  leaf_assignments().fetch_add(1, std::memory_order_release);
}

}  // namespace espalier
