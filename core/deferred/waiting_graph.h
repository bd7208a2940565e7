// WaitingGraph: nodes that wait, as numbers: what a schedule is made from, and known again by.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/core/tree.h"

namespace espalier {

/// An output that a waiting node reads.
struct WaitingUse {
  static constexpr uint32_t external_bit = uint32_t{1} << 31;
  uint32_t from;    ///< the number of a waiting node or, with external_bit, of an external Variable
  uint32_t output;  ///< of the waiting node
  int32_t row;      ///< of an external one: negative if it is all of it
  bool external() const { return from & external_bit; }
  uint32_t index() const { return from & ~external_bit; }
  friend bool operator==(const WaitingUse&, const WaitingUse&) = default;
};

/// A kind of node: those of one kind have one op, and inputs that allow to compute them together.
struct NodeKind {
  OpPtr op;
  SmallVector<uint32_t, 2> output_specs = {};  ///< numbers
  uint64_t shared = 0;                         ///< bit i: input i is the same for all nodes of the kind
  bool common = false;                         ///< all inputs are: the nodes have one value
  bool one_by_one = false;                     ///< the op cannot be computed for several nodes at once
};

/// Numbers for kinds of nodes, which stay the same from evaluation to evaluation.
class NodeKinds {
 public:
  NodeKind& operator[](uint32_t kind) { return kinds_[kind]; }
  uint32_t kind_of(const Node& node, std::span<const WaitingUse> uses,
                   std::span<const uint32_t> kinds_of_nodes);
  size_t size() const { return kinds_.size(); }
  void clear();

 private:
  struct WordsHash {
    size_t operator()(const std::vector<uint64_t>& words) const;
  };
  uint64_t number_of_op(const OpPtr& op);
  uint32_t number_of_spec(const Spec& spec, Device device);

  std::vector<NodeKind> kinds_;
  std::unordered_map<std::vector<uint64_t>, uint32_t, WordsHash> by_key_;
  std::unordered_map<std::vector<uint64_t>, uint32_t, WordsHash> specs_;
  std::unordered_map<const Op*, uint64_t> by_address_;  ///< ops that are held, or live for ever
  std::unordered_map<std::string_view, std::vector<std::pair<OpPtr, uint64_t>>> made_ops_;
  uint64_t ops_ = 0;
  std::vector<uint64_t> key_, spec_key_;
};

class WaitingGraph {
 public:
  /// Nodes in the order of writing; `place` of each is its number. Throws Error if a leaf has been assigned
  /// since a node was written that reads it.
  WaitingGraph(std::vector<Node*> nodes, NodeKinds& kinds);

  size_t size() const { return nodes_.size(); }
  Node& node(uint32_t i) const { return *nodes_[i]; }
  uint32_t kind(uint32_t i) const { return kinds_of_[i]; }
  std::span<const WaitingUse> uses(uint32_t i) const {
    return {uses_.data() + first_use_[i], uses_.data() + first_use_[i + 1]};
  }
  const Variable& external(uint32_t i) const { return externals_[i]; }
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  WaitingUse use_of(const Node& reader, const Edge& edge);

  std::vector<Node*> nodes_;
  std::vector<uint32_t> kinds_of_, first_use_;
  std::vector<WaitingUse> uses_;
  std::vector<Variable> externals_;
  std::vector<NodeMap> external_numbers_;                   ///< by output
  std::map<std::pair<DType, uint64_t>, uint32_t> scalars_;  ///< externals, by their bits
  std::vector<uint64_t> words_;  ///< the structure: two graphs with equal words have one schedule
};

}  // namespace espalier
