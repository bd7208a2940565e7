#include <bit>
#include <cstring>
#include <functional>

#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

constexpr size_t largest_compared_constant = 1024;  // bytes

/// The hash of what several parts make.
class HashOfParts {
 public:
  void add(uint64_t part) { hash_ = (std::rotl(hash_, 25) ^ part) * 0x9E3779B97F4A7C15u; }
  void add(std::string_view part) { add(std::hash<std::string_view>()(part)); }
  void add(const AttributeValue& part) {
    std::visit(
        [this]<class T>(const T& value) {
          if constexpr (std::is_same_v<T, std::string>)
            add(std::string_view(value));
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            for (const int64_t element : value) add(static_cast<uint64_t>(element));
          else
            add(uint64_t{std::hash<T>()(value)});
        },
        part);
  }
  uint64_t value() const { return hash_ ^ hash_ >> 32; }

 private:
  uint64_t hash_ = 0;
};

std::string_view raw_bytes(const Tensor& contiguous) {
  return {static_cast<const char*>(contiguous.address()), contiguous.bytes()};
}

/// Equal nodes have equal hashes; empty: the node equals no other.
std::optional<uint64_t> hash_of_node(const GraphNode& n) {
  HashOfParts hash;
  hash.add(n.op->name());
  if (n.is_constant()) {
    if (n.constant->bytes() > largest_compared_constant) return std::nullopt;
    hash.add(raw_bytes(n.constant->to(cpu()).contiguous_copy()));
    return hash.value();
  }
  if (n.op->is_leaf() || n.op->effect() != Effect::none || n.op->feed()) return std::nullopt;
  for (const auto& [key, value] : n.op->attributes()) hash.add(value);
  for (const ValueRef& input : n.inputs) hash.add(uint64_t{input.node} << 32 | input.output);
  return hash.value();
}

bool equal_constants(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && a.device() == b.device() &&
         raw_bytes(a.to(cpu()).contiguous_copy()) == raw_bytes(b.to(cpu()).contiguous_copy());
}

bool equal_nodes(const GraphNode& a, const GraphNode& b) {
  if (a.is_constant() || b.is_constant())
    return a.is_constant() && b.is_constant() && equal_constants(*a.constant, *b.constant);
  return a.inputs == b.inputs && a.op->equals(*b.op);
}

/// The nodes so far that differ from each other, by their hashes.
class DistinctNodes {
 public:
  explicit DistinctNodes(const Graph& graph)
      : graph_(graph), slots_(std::bit_ceil(2 * graph.nodes.size() + 1)) {}

  /// The first of the nodes that equal a node, which may be that node itself.
  uint32_t first_like(uint32_t node, uint64_t hash) {
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash;; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.node == none) {
        slot = {node, tag};
        return node;
      }
      if (slot.tag == tag && equal_nodes(graph_.nodes[node], graph_.nodes[slot.node])) return slot.node;
    }
  }

 private:
  static constexpr uint32_t none = UINT32_MAX;
  struct Slot {
    uint32_t node = none;
    uint32_t tag = 0;  // of the hash: most nodes that differ need not be compared
  };
  const Graph& graph_;
  std::vector<Slot> slots_;
};

}  // namespace

bool common_subexpressions(Graph& graph, const CompileOptions&) {
  DistinctNodes distinct(graph);
  bool changed = false;
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    for (ValueRef& input : n.inputs) input = rewriter.resolve(input);
    const auto hash = hash_of_node(n);
    if (!hash) continue;
    const uint32_t first = distinct.first_like(i, *hash);
    if (first == i) continue;
    for (uint32_t k = 0; k < n.outputs.size(); ++k) rewriter.replace({i, k}, {first, k});
    changed = true;
  }
  if (!changed) return false;
  rewriter.finish();
  dead_nodes(graph);
  return true;
}

}  // namespace espalier
