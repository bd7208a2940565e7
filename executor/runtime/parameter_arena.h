// ParameterArena: the memory of the parameters, variables and states that an executor's plans read and write.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "espalier/core/kept_values.h"
#include "espalier/core/node.h"

namespace espalier {

/// Where the plans of one executor, on one device, read and write its leaves.
///
/// The executors on a leaf's device share one memory. The first one settles it: in the leaf's own buffer if
/// nothing else holds that, else apart until a step writes the leaf, whose value then is there. It stays as
/// long as one of the executors exists. On another device, and in every further replica, a leaf has a copy,
/// its mirror. A copy is written again when its version is not that of the leaf, and the leaf fetches its
/// value from a mirror on demand.
///
/// Several threads may make, use and destroy executors over the same leaves. What copies elements of leaves
/// or writes them is called while a LeafUse of the arena's leaves is entered.
class ParameterArena {
 public:
  explicit ParameterArena(Device device) : device_(device) {}
  ~ParameterArena();
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  /// Makes this the arena of a further replica, whose leaves are mirrors of the first replica's and are never
  /// fetched from here. Before the first `add`.
  void follow() { follows_ = true; }
  /// Whether the leaves lie side by side, in the order of `add`.
  enum class Order : uint8_t {
    any,
    preferred,  ///< those that no executor has settled yet
    needed,     ///< all, as `range` needs it; those that are settled otherwise get mirrors
  };
  /// Before the first `bind`.
  void arrange(Order order) { order_ = order; }
  /// Which replicas hold a leaf.
  enum class Keeping : uint8_t {
    shared,   ///< all of them
    alone,    ///< this one: between steps the leaf has no value, and fetches it from here on demand
    nowhere,  ///< another one of this process
    away,     ///< another process: the leaf has no value in this process once a step has written it
  };
  struct Settled;
  /// Where the leaf is, even while another thread settles it.
  static Device device_of(const Variable& leaf);
  /// Adds a leaf, once. All are added before the first `bind`.
  void add(const Variable& leaf, Keeping keeping = Keeping::shared);
  /// Whether `bind` would copy nothing. A few nanoseconds as long as no leaf of the process is assigned.
  bool is_current();
  /// Copies the values of leaves that have been assigned since the last call. Returns true if there were any.
  bool bind();
  /// The slots that the last `bind` copied; the arenas of further replicas must `renew` them.
  std::span<const size_t> copied() const { return copied_; }
  void renew(std::span<const size_t> slots);
  /// A leaf's place in the order of `add`.
  size_t slot(const Variable& leaf) const { return slot(leaf.node()); }
  size_t slot(const Node* leaf) const { return index_.at(leaf); }
  /// Whether the leaf has memory here.
  bool has(size_t slot) const {
    return slots_[slot].keeping == Keeping::shared || slots_[slot].keeping == Keeping::alone;
  }
  /// The memory of a leaf; it does not change after the first `bind`.
  const Tensor& tensor(size_t slot) const { return slots_[slot].tensor; }
  /// The bytes from one leaf to the end of another. Order::needed alone.
  Tensor range(size_t first, size_t last) const;
  /// Of all leaves here, in bytes.
  int64_t bytes() const;
  /// A greater number once a leaf here has another value; above 0, and the same for all arenas of these
  /// leaves. Called while a LeafUse of the leaves is entered. A few nanoseconds as long as no leaf of the
  /// process is assigned.
  uint64_t contents();
  /// Whether all leaves are in memory that the arenas on this device share.
  bool is_shared() const;
  /// Notes that a step has written these leaves: each gets a new version, unless it has been assigned since
  /// `bind`. An arena of a further replica notes that it has that version.
  void mark_assigned(std::span<const size_t> slots);

 private:
  struct Slot {
    Variable leaf;
    Tensor tensor;
    Keeping keeping = Keeping::shared;
    bool mirrored = false;                       // the leaf has its value elsewhere
    std::shared_ptr<Settled> settled = nullptr;  // else: the memory that executors on this device share
    bool follows = false;
    bool copied = false;   // mirrors: whether there is a value
    uint64_t version = 0;  // mirrors: of that value
  };
  bool settled_in_order() const;
  void settle();
  bool is_current(const Slot& slot) const;
  bool renew_mirror(Slot& slot);
  bool take_in(Slot& slot);
  void leave(const Slot& slot) noexcept;

  Device device_;
  std::vector<Slot> slots_;
  std::vector<size_t> copied_;
  std::map<const Node*, size_t> index_;
  bool allocated_ = false;
  uint64_t assignments_ = 0;  // of the process, when the leaves here were current
  bool follows_ = false;
  Order order_ = Order::any;
  uint64_t seen_assignments_ = 0;  // of the process, when `contents_` was of current leaves
  uint64_t contents_ = 0;
};

/// What the kernels of a session keep of its leaves.
class KeptLeafValues : public KeptValues {
 public:
  explicit KeptLeafValues(ParameterArena& leaves) : leaves_(leaves) {}
  /// Keeps values together with other sessions over the same leaves, as far as these lie in the same memory.
  /// Called before the first plan is bound.
  void share(std::shared_ptr<KeptValueStore> store) { shared_ = std::move(store); }
  uint64_t version() override { return leaves_.contents(); }
  std::shared_ptr<KeptValue> of(const std::string& key, int64_t bytes) override {
    return (shared_ && leaves_.is_shared() ? *shared_ : own_).of(key, bytes);
  }

 private:
  ParameterArena& leaves_;
  KeptValueStore own_;
  std::shared_ptr<KeptValueStore> shared_;
};

}  // namespace espalier
