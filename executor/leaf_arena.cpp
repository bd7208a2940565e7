#include "espalier/executor/leaf_arena.h"

#include "espalier/core/eval.h"

namespace espalier {

void LeafArena::add(const Variable& leaf) {
  if (!index_.emplace(leaf.node(), slots_.size()).second) return;
  const Device home = leaf.node()->outputs[0].value.device();
  const bool host = home.type == DeviceType::cpu && device_.type == DeviceType::cpu;
  slots_.push_back({.leaf = leaf, .tensor = {}, .mirrored = follows_ || (home != device_ && !host)});
  allocated_ = false;
}

void LeafArena::allocate() {
  constexpr int64_t alignment = 64;
  int64_t total = 0;
  std::vector<int64_t> offsets;
  for (const Slot& slot : slots_) {
    offsets.push_back(total);
    const Spec& spec = slot.leaf.node()->outputs[0].spec;
    const int64_t bytes = spec.shape.elements() * static_cast<int64_t>(size_of(spec.dtype));
    total += (bytes + alignment - 1) / alignment * alignment;
  }
  const Tensor arena({total}, DType::boolean, device_);  // bytes
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Spec& spec = slots_[i].leaf.node()->outputs[0].spec;
    Layout layout(spec.shape);
    layout.offset = offsets[i] / static_cast<int64_t>(size_of(spec.dtype));
    slots_[i].tensor = Tensor(arena.storage(), std::move(layout), spec.dtype);
  }
  allocated_ = true;
}

bool LeafArena::bind() {
  if (!allocated_) allocate();
  bool changed = false;
  copied_.clear();
  for (Slot& slot : slots_) {
    Node& leaf = *slot.leaf.node();
    Tensor& value = leaf.outputs[0].value;
    if (slot.mirrored) {
      if (slot.copied && slot.stamp == leaf.stamp) continue;
      ensure_value(leaf);
      const bool far = value.device().type == device_.type && value.device() != device_ &&
                       device_.type != DeviceType::cpu;  // another GPU
      copy_elements(far ? value.to(cpu()) : value, slot.tensor);
      slot.copied = changed = true;
      slot.stamp = leaf.stamp;
      copied_.push_back(static_cast<size_t>(&slot - slots_.data()));
      continue;
    }
    if (value.address() == slot.tensor.address()) continue;
    copied_.push_back(static_cast<size_t>(&slot - slots_.data()));
    copy_elements(value, slot.tensor);
    const bool large = value.bytes() >= (size_t{1} << 24);
    value = slot.tensor;
    leaf.bound = changed = true;
    // What a large leaf has left would lie about beside the arena.
    if (large) release_cached_memory(device_);
  }
  return changed;
}

void LeafArena::renew(std::span<const size_t> slots) {
  for (const size_t i : slots) slots_[i].copied = false;
}

void LeafArena::unbind() {
  for (Slot& slot : slots_) {
    Node& leaf = *slot.leaf.node();
    if (slot.mirrored) {
      if (!leaf.has_value()) ensure_value(leaf);
      continue;
    }
    if (leaf.outputs[0].value.address() != slot.tensor.address()) continue;  // another's, or its own
    leaf.outputs[0].value = slot.tensor.clone();
    leaf.bound = false;
  }
}

void LeafArena::mark_assigned(std::span<const size_t> slots) {
  for (const size_t i : slots) {
    Slot& slot = slots_[i];
    Node& leaf = *slot.leaf.node();
    if (follows_) {
      slot.stamp = leaf.stamp;
      continue;
    }
    leaf.stamp = Node::next_id();
    if (!slot.mirrored) continue;
    slot.stamp = leaf.stamp;
    if (leaf.has_value()) {
      leaf.clear_value();
      leaf.rare().elsewhere = slot.tensor;
    }
  }
}

}  // namespace espalier
