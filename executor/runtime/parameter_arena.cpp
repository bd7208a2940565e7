#include "espalier/executor/runtime/parameter_arena.h"

#include "espalier/core/eval.h"

namespace espalier {

namespace {

int64_t bytes_of(const Tensor& leaf) { return aligned_bytes(leaf.spec().bytes()); }

int64_t offset_of(const Tensor& leaf) {
  return leaf.layout().offset * static_cast<int64_t>(size_of(leaf.dtype()));
}

}  // namespace

void ParameterArena::add(const Variable& leaf, Keeping keeping) {
  if (!index_.emplace(leaf.node(), slots_.size()).second) return;
  const Device home = leaf.node()->outputs[0].value.device();
  const bool host = home.type == DeviceType::cpu && device_.type == DeviceType::cpu;
  const Spec& spec = leaf.node()->outputs[0].spec;
  slots_.push_back({.leaf = leaf,
                    .tensor = Tensor(StoragePtr(), Layout(spec.shape), spec.dtype),
                    .keeping = keeping,
                    .mirrored = follows_ || (home != device_ && !host),
                    .follows = follows_ && keeping == Keeping::shared});
  allocated_ = false;
}

void ParameterArena::allocate() {
  int64_t total = 0;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < slots_.size(); ++i) {
    offsets.push_back(total);
    if (has(i)) total += bytes_of(slots_[i].tensor);
  }
  arena_ = Tensor({total}, DType::boolean, device_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!has(i)) continue;
    const Spec& spec = slots_[i].leaf.node()->outputs[0].spec;
    Layout layout(spec.shape);
    layout.offset = offsets[i] / static_cast<int64_t>(size_of(spec.dtype));
    slots_[i].tensor = Tensor(arena_.storage(), std::move(layout), spec.dtype);
  }
  allocated_ = true;
}

Tensor ParameterArena::range(size_t first, size_t last) const {
  const int64_t begin = offset_of(slots_[first].tensor);
  Layout layout(Shape{offset_of(slots_[last].tensor) + bytes_of(slots_[last].tensor) - begin});
  layout.offset = begin;
  return Tensor(arena_.storage(), std::move(layout), DType::boolean);
}

bool ParameterArena::bind() {
  if (!allocated_) allocate();
  bool changed = false;
  copied_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!has(i)) continue;
    Slot& slot = slots_[i];
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
    ensure_value(leaf);
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

void ParameterArena::renew(std::span<const size_t> slots) {
  for (const size_t i : slots) slots_[i].copied = false;
}

void ParameterArena::unbind() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!has(i) || slot.follows) continue;
    Node& leaf = *slot.leaf.node();
    if (slot.mirrored) {
      if (!leaf.has_value()) ensure_value(leaf);
      continue;
    }
    if (!leaf.has_value() || leaf.outputs[0].value.address() != slot.tensor.address())
      continue;  // another's, or its own
    leaf.outputs[0].value = slot.tensor.clone();
    leaf.bound = false;
  }
}

void ParameterArena::mark_assigned(std::span<const size_t> slots) {
  for (const size_t i : slots) {
    Slot& slot = slots_[i];
    Node& leaf = *slot.leaf.node();
    if (slot.keeping == Keeping::nowhere) continue;
    if (slot.follows) {
      slot.stamp = leaf.stamp;
      continue;
    }
    leaf.stamp = Node::next_id();
    const bool away = slot.keeping == Keeping::away;
    if (!away && !slot.mirrored) continue;
    slot.stamp = leaf.stamp;
    if (!away && !leaf.has_value()) continue;  // it is fetched from here already
    leaf.clear_value();
    leaf.bound = false;
    leaf.rare().elsewhere = away ? Tensor() : slot.tensor;
  }
}

}  // namespace espalier
