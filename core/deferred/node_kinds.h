// NodeKinds: which waiting nodes can be computed together.
#pragma once
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "espalier/core/deferred/number_table.h"
#include "espalier/core/node.h"

namespace espalier {

/// An output that a waiting node reads.
struct WaitingUse {
  static constexpr uint32_t external_bit = uint32_t{1} << 31;
  uint32_t from;  ///< the number of a waiting node or, with external_bit, of an external Variable
  int32_t at;     ///< the output of a waiting node; of an external one the row, or −1: all of it
  bool external() const { return from & external_bit; }
  uint32_t index() const { return from & ~external_bit; }
  uint32_t output() const { return static_cast<uint32_t>(at); }
  int32_t row() const { return at; }
};

/// A kind of node: those of one kind have one op, and inputs that allow to compute them together.
struct NodeKind {
  OpPtr op;
  SmallVector<uint32_t, 2> output_specs = {};  ///< numbers
  bool common = false;                         ///< all inputs are shared: the nodes have one value
  bool one_by_one = false;                     ///< the op cannot be computed for several nodes at once
  uint32_t group = 0;                          ///< the first of the kinds that differ in their rows alone
  InputSet row_inputs = InputSet::none();      ///< as op.row_inputs, if there may be others in its group
  size_t first_word = 0, words = 0;            ///< of its key
  uint32_t follower = 0;                       ///< the kind of the node that was written behind one last
};

/// Numbers for kinds of nodes, which stay the same from evaluation to evaluation.
class NodeKinds {
 public:
  NodeKind& operator[](uint32_t kind) { return kinds_[kind]; }
  const NodeKind& operator[](uint32_t kind) const { return kinds_[kind]; }
  /// The kind of a node that reads this, where `kinds_of_nodes` are those of the nodes before it.
  uint32_t kind_of(const Node& node, std::span<const WaitingUse> uses,
                   std::span<const uint32_t> kinds_of_nodes);
  size_t size() const { return kinds_.size(); }
  void clear() { *this = NodeKinds(); }

 private:
  struct PlacedSpec {
    Spec spec;
    Device device;
  };
  struct KnownOp {
    const Op* op;  ///< is held, or lives for ever
    uint32_t number;
  };
  bool is_of_kind(uint32_t kind, const Node& node, std::span<const WaitingUse> uses,
                  std::span<const uint32_t> kinds_of_nodes) const;
  /// How a key tells an operand that waits.
  uint64_t word_of_waiting(const WaitingUse& use, std::span<const uint32_t> kinds_of_nodes) const;
  uint32_t find_kind(const Node& node, std::span<const WaitingUse> uses,
                     std::span<const uint32_t> kinds_of_nodes);
  uint32_t add_kind(const Node& node, uint64_t hash);
  /// Finds the group of a kind with the key at hand.
  void add_to_group(NodeKind& kind, uint32_t number, const Node& node);
  uint32_t number_of_op(const OpPtr& op);
  uint32_t number_of_spec(const Spec& spec, Device device);
  std::span<const uint64_t> key_of(uint32_t kind) const {
    return {words_.data() + kinds_[kind].first_word, kinds_[kind].words};
  }

  std::vector<NodeKind> kinds_;
  std::vector<uint64_t> words_;  // of the keys of all kinds
  std::vector<PlacedSpec> specs_;
  std::vector<KnownOp> known_ops_;
  std::unordered_map<std::string_view, std::vector<std::pair<OpPtr, uint32_t>>> made_ops_;
  std::map<std::vector<uint64_t>, uint32_t> groups_;  // by their keys, which have no numbers of rows
  uint32_t ops_ = 0;
  NumberTable by_key_, by_spec_, by_address_;
  std::vector<uint64_t> key_;
};

}  // namespace espalier
