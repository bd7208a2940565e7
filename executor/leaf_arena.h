// LeafArena: where an executor's plans read and write parameters, variables and states.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "espalier/core/node.h"

namespace espalier {

/// The leaves of one executor side by side in one buffer, which all its plans share.
///
/// Leaves of the arena's own device lie in it while they are bound. Those of another device keep a value of
/// their own there: it is copied in when it is newer, and fetched back when somebody asks for it.
class LeafArena {
 public:
  explicit LeafArena(Device device) : device_(device) {}

  /// Makes this arena that of a replica beside the one whose leaves are the tree's: it takes what is new of
  /// them, and gives nothing back. Before the first `add`.
  void follow() { follows_ = true; }
  /// Adds a leaf, once. All are added before the first `bind`.
  void add(const Variable& leaf);
  /// Brings the arena up to date with leaves that were given another value since, and says whether there were
  /// any.
  bool bind();
  /// The slots which the last `bind` copied in. Their leaves may have been written in place, of which no
  /// stamp tells: arenas that follow must `renew` them.
  std::span<const size_t> copied() const { return copied_; }
  void renew(std::span<const size_t> slots);
  /// Gives every leaf a value of its own again.
  void unbind();
  /// A leaf's place in the order of `add`.
  size_t slot(const Variable& leaf) const { return index_.at(leaf.node()); }
  /// The leaf's tensor in the arena.
  const Tensor& tensor(size_t slot) const { return slots_[slot].tensor; }
  /// Tells the tree that these leaves have been written; an arena that follows is told so itself.
  void mark_assigned(std::span<const size_t> slots);

 private:
  struct Slot {
    Variable leaf;
    Tensor tensor;
    bool mirrored = false;  // the leaf's own value is on another device
    bool copied = false;
    uint64_t stamp = 0;  // of the value that was copied in or written here last
  };
  void allocate();

  Device device_;
  std::vector<Slot> slots_;
  std::vector<size_t> copied_;
  std::map<const Node*, size_t> index_;
  bool allocated_ = false;
  bool follows_ = false;
};

}  // namespace espalier
