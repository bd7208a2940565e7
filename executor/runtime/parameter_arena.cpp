#include "espalier/executor/runtime/parameter_arena.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <tuple>

#include "espalier/core/eval.h"
#include "espalier/core/leaf_use.h"

namespace espalier {

namespace {

/// Logical CPU devices share one memory.
bool same_memory(Device a, Device b) {
  return a == b || (a.type == DeviceType::cpu && b.type == DeviceType::cpu);
}

int64_t bytes_of(const Tensor& leaf) { return aligned_bytes(leaf.spec().bytes()); }

int64_t offset_of(const Tensor& leaf) {
  return leaf.layout().offset * static_cast<int64_t>(size_of(leaf.dtype()));
}

/// Whether plans may write the value where it is: nothing else holds its buffer, and its elements lie as in a
/// plan.
bool can_stay(const Tensor& value) {
  const auto at = reinterpret_cast<uintptr_t>(value.address());
  return value.storage().unique() && value.contiguous() && at % buffer_alignment == 0;
}

bool is_at(const Tensor& tensor, const Tensor& memory) {
  return tensor.defined() && tensor.address() == memory.address();
}

}  // namespace

struct ParameterArena::Settled {
  Tensor memory;
  std::optional<uint64_t> version = {};  ///< of the leaf's value that is in it
};

namespace {

/// The memory of all leaves that executors have, by leaf and device. Guarded by `leaves_mutex`.
struct SettledLeaves {
  using Settled = ParameterArena::Settled;
  using Key = std::tuple<const Node*, DeviceType, int>;

  std::map<Key, std::weak_ptr<Settled>> memories;

  static Key key_of(const Node* leaf, Device device) {
    return {leaf, device.type, device.type == DeviceType::cpu ? 0 : device.index};
  }
  /// Null if no executor on the device has the leaf.
  std::shared_ptr<Settled> find(const Node* leaf, Device device) const {
    const auto known = memories.find(key_of(leaf, device));
    return known == memories.end() ? nullptr : known->second.lock();
  }
  void add(const Node* leaf, Device device, const std::shared_ptr<Settled>& settled) {
    memories[key_of(leaf, device)] = settled;
  }
  void forget(const Node* leaf, Device device) { memories.erase(key_of(leaf, device)); }
};
SettledLeaves& settled_leaves() {
  static SettledLeaves* leaves = new SettledLeaves;  // outlives every executor
  return *leaves;
}

}  // namespace

ParameterArena::~ParameterArena() {
  const std::scoped_lock lock(leaves_mutex());
  for (Slot& slot : slots_) {
    Node& leaf = *slot.leaf.node();
    if (!slot.settled) {
      leave(slot);
      continue;
    }
    const std::weak_ptr<Settled> memory = slot.settled;
    slot.settled.reset();
    if (!memory.expired()) continue;
    settled_leaves().forget(&leaf, device_);
    if (is_at(leaf.outputs[0].value, slot.tensor)) leaf.bound = false;  // nothing writes it in place any more
  }
}

/// What the leaf has here goes where it belongs, so that this memory is freed.
void ParameterArena::leave(const Slot& slot) noexcept {
  Node& leaf = *slot.leaf.node();
  if (slot.follows || !slot.tensor.defined() || !leaf.away) return;
  if (const Tensor& value = leaf.rare().elsewhere; !value.defined() || !is_at(value, slot.tensor)) return;
  try {
    ensure_value(leaf);
  } catch (const std::exception&) {  // the device is broken, or there is no memory: the leaf holds this one
  }
}

Device ParameterArena::device_of(const Variable& leaf) {
  const std::scoped_lock lock(leaves_mutex());
  return leaf.device();
}

void ParameterArena::add(const Variable& leaf, Keeping keeping) {
  if (!index_.emplace(leaf.node(), slots_.size()).second) return;
  const Spec& spec = leaf.node()->outputs[0].spec;
  slots_.push_back({.leaf = leaf,
                    .tensor = Tensor(StoragePtr(), Layout(spec.shape), spec.dtype),
                    .keeping = keeping,
                    .mirrored = follows_ || !same_memory(device_of(leaf), device_),
                    .follows = follows_ && keeping == Keeping::shared});
}

/// Whether the leaves are settled side by side already, as far as they are here and settled at all.
bool ParameterArena::settled_in_order() const {
  bool any = false, in_order = true;
  int64_t next = 0;
  const Storage* storage = nullptr;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!has(i)) continue;
    const auto known = settled_leaves().find(slots_[i].leaf.node(), device_);
    if (!known) {
      in_order = false;
      continue;
    }
    const Tensor& settled = known->memory;
    in_order &= !any || (settled.storage().get() == storage && offset_of(settled) == next);
    any = true;
    storage = settled.storage().get();
    next = offset_of(settled) + bytes_of(settled);
  }
  return in_order || !any;
}

/// Gives every leaf here its memory.
void ParameterArena::settle() {
  const bool apart = order_ == Order::needed && !settled_in_order();
  int64_t total = 0;
  std::vector<int64_t> offsets(slots_.size(), -1);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!has(i)) continue;
    Node& leaf = *slot.leaf.node();
    slot.mirrored |= apart;
    const Tensor& value = leaf.outputs[0].value;
    if (!slot.mirrored) slot.settled = settled_leaves().find(&leaf, device_);
    if (slot.settled) {
      slot.tensor = slot.settled->memory;
    } else if (!slot.mirrored && order_ == Order::any && leaf.has_value() && can_stay(value)) {
      slot.tensor = value;
    } else {
      offsets[i] = total;
      total += bytes_of(slot.tensor);
    }
  }
  const Tensor memory = Tensor({total}, DType::boolean, device_);  // bytes
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!has(i)) continue;
    if (offsets[i] >= 0) {
      Layout layout(slot.tensor.shape());
      layout.offset = offsets[i] / static_cast<int64_t>(size_of(slot.tensor.dtype()));
      slot.tensor = Tensor(memory.storage(), std::move(layout), slot.tensor.dtype());
    }
    if (slot.mirrored || slot.settled) continue;
    slot.settled = std::make_shared<Settled>(Settled{slot.tensor});
    settled_leaves().add(slot.leaf.node(), device_, slot.settled);
  }
  allocated_ = true;
}

Tensor ParameterArena::range(size_t first, size_t last) const {
  const int64_t begin = offset_of(slots_[first].tensor);
  Layout layout(Shape{offset_of(slots_[last].tensor) + bytes_of(slots_[last].tensor) - begin});
  layout.offset = begin;
  return Tensor(slots_[first].tensor.storage(), std::move(layout), DType::boolean);
}

int64_t ParameterArena::bytes() const {
  int64_t total = 0;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (has(i)) total += bytes_of(slots_[i].tensor);
  return total;
}

bool ParameterArena::is_current() {
  if (allocated_ && assignments_ == leaf_assignments().load(std::memory_order_acquire)) return true;
  const std::scoped_lock lock(leaves_mutex());
  if (!allocated_) settle();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (has(i) && !is_current(slots_[i])) return false;
  assignments_ = leaf_assignments().load(std::memory_order_relaxed);
  return true;
}

bool ParameterArena::is_current(const Slot& slot) const {
  const Node& leaf = *slot.leaf.node();
  return slot.mirrored ? slot.copied && slot.version == leaf.version : slot.settled->version == leaf.version;
}

bool ParameterArena::bind() {
  const std::scoped_lock lock(leaves_mutex());
  if (!allocated_) settle();
  assignments_ = leaf_assignments().load(std::memory_order_relaxed);
  copied_.clear();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (has(i) && (slots_[i].mirrored ? renew_mirror(slots_[i]) : take_in(slots_[i]))) copied_.push_back(i);
  return !copied_.empty();
}

bool ParameterArena::renew_mirror(Slot& slot) {
  Node& leaf = *slot.leaf.node();
  if (is_current(slot)) return false;
  ensure_value(leaf);
  const Tensor& value = leaf.outputs[0].value;
  const bool far = value.device().type == device_.type && value.device() != device_ &&
                   device_.type != DeviceType::cpu;  // another GPU
  copy_elements(far ? value.to(cpu()) : value, slot.tensor);
  slot.copied = true;
  slot.version = leaf.version;
  return true;
}

/// The leaf's own value is not touched: other threads may read it.
bool ParameterArena::take_in(Slot& slot) {
  Node& leaf = *slot.leaf.node();
  ensure_value(leaf);
  const Tensor& value = leaf.outputs[0].value;
  Settled& settled = *slot.settled;
  if (is_at(value, slot.tensor)) {
    if (!leaf.bound) leaf.bound = true;
    settled.version = leaf.version;
    return false;
  }
  if (is_current(slot)) return false;
  copy_elements(value, slot.tensor);
  settled.version = leaf.version;
  return true;
}

void ParameterArena::renew(std::span<const size_t> slots) {
  for (const size_t i : slots) slots_[i].copied = false;
}

uint64_t ParameterArena::contents() {
  if (contents_ > 0 && seen_assignments_ == leaf_assignments().load(std::memory_order_acquire))
    return contents_;
  const std::scoped_lock lock(leaves_mutex());
  // Each assignment takes a greater version than all before it. A leaf that has been assigned since the run
  // began is not in the memory yet: only `bind` brings it there, and then the number must be found anew.
  contents_ = 1;
  bool current = true;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!has(i)) continue;
    const Slot& slot = slots_[i];
    contents_ = std::max(contents_, 1 + (slot.settled ? slot.settled->version.value_or(0) : slot.version));
    current &= is_current(slot);
  }
  if (current) seen_assignments_ = leaf_assignments().load(std::memory_order_relaxed);
  return contents_;
}

bool ParameterArena::is_shared() const {
  return allocated_ && std::ranges::all_of(slots_, [](const Slot& slot) { return slot.settled != nullptr; });
}

void ParameterArena::mark_assigned(std::span<const size_t> slots) {
  if (slots.empty()) return;
  const std::scoped_lock lock(leaves_mutex());
  const uint64_t before = leaf_assignments().fetch_add(1, std::memory_order_release);
  if (assignments_ == before) assignments_ = before + 1;
  for (const size_t i : slots) {
    Slot& slot = slots_[i];
    Node& leaf = *slot.leaf.node();
    if (slot.keeping == Keeping::nowhere) continue;
    if (slot.follows) {
      slot.version = leaf.version;
      continue;
    }
    if (slot.settled && slot.settled->version != leaf.version)
      continue;  // another thread has assigned it since
    leaf.version = Node::next_id();
    const bool away = slot.keeping == Keeping::away;
    if (slot.settled) {
      slot.settled->version = leaf.version;
      if (is_at(leaf.outputs[0].value, slot.tensor)) continue;
      // The leaf's own buffer is of no use any more, and may lie unused beside this memory.
      const bool large =
          leaf.outputs[0].value.defined() && leaf.outputs[0].value.bytes() >= (size_t{1} << 24);
      leaf.outputs[0].value = slot.tensor;
      leaf.bound = true;
      if (large) release_cached_memory(device_);
      continue;
    }
    slot.version = leaf.version;
    if (!away && !leaf.has_value()) continue;  // it is fetched from here already
    leaf.clear_value();
    leaf.bound = false;
    leaf.rare().elsewhere = away ? Tensor() : slot.tensor;
    leaf.away.store(true, std::memory_order_release);
  }
}

}  // namespace espalier
