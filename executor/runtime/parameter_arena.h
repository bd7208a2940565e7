// ParameterArena: where an executor's plans read and write parameters, variables and states.
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
class ParameterArena {
 public:
  explicit ParameterArena(Device device) : device_(device) {}

  /// Makes this arena that of a replica beside the one whose leaves are the tree's: it takes what is new of
  /// them, and gives nothing back. Before the first `add`.
  void follow() { follows_ = true; }
  /// How the replicas keep a leaf.
  enum class Keeping : uint8_t {
    shared,   ///< each has it
    alone,    ///< this one alone: the leaf's value is here between steps, and is fetched when somebody asks
    nowhere,  ///< another arena of this process has it
    away,     ///< another process has it: the leaf has no value here once a step has written it
  };
  /// Adds a leaf, once. All are added before the first `bind`.
  void add(const Variable& leaf, Keeping keeping = Keeping::shared);
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
  size_t slot(const Variable& leaf) const { return slot(leaf.node()); }
  size_t slot(const Node* leaf) const { return index_.at(leaf); }
  /// Whether the leaf has memory here.
  bool has(size_t slot) const {
    return slots_[slot].keeping == Keeping::shared || slots_[slot].keeping == Keeping::alone;
  }
  /// The leaf's tensor in the arena.
  const Tensor& tensor(size_t slot) const { return slots_[slot].tensor; }
  /// The bytes from one leaf to the end of another.
  Tensor range(size_t first, size_t last) const;
  /// That it takes on its device.
  int64_t bytes() const { return arena_.defined() ? arena_.elements() : 0; }
  /// Tells the tree that these leaves have been written; an arena that follows is told so itself.
  void mark_assigned(std::span<const size_t> slots);

 private:
  struct Slot {
    Variable leaf;
    Tensor tensor;
    Keeping keeping = Keeping::shared;
    bool mirrored = false;  // the leaf's own value is on another device, or that of another arena
    bool follows = false;
    bool copied = false;
    uint64_t stamp = 0;  // of the value that was copied in or written here last
  };
  void allocate();

  Device device_;
  std::vector<Slot> slots_;
  std::vector<size_t> copied_;
  std::map<const Node*, size_t> index_;
  Tensor arena_;  // bytes
  bool allocated_ = false;
  bool follows_ = false;
};

}  // namespace espalier
