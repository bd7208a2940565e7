#include "espalier/executor/passes/duplicates.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "espalier/core/op_names.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

constexpr size_t most_work = 16;       // ops that one copy may have
constexpr size_t most_to_extend = 48;  // members of a kernel that gets copies, and these
constexpr size_t most_operands = 24;   // of such a kernel
/// An operand is small if it has so many times fewer elements than the result.
constexpr int64_t small_part = 8;

/// Ops that take a few instructions for an element.
bool is_cheap(const Op& op) {
  static constexpr std::array cheap = {"abs",      "add",  "cast",          "maximum", "minimum", "multiply",
                                       "negative", "relu", "relu_gradient", "square",  "subtract"};
  return std::ranges::any_of(cheap, [&](std::string_view name) { return is_op(op, name); });
}

class Duplicator {
 public:
  Duplicator(const Graph& graph, const Clustering& clustering)
      : graph_(graph), clustering_(clustering), origins_(graph.nodes.size()) {
    find_readers();
  }

  Duplicates run() {
    std::vector<std::set<uint32_t>> copies(clustering_.clusters().size());
    for (uint32_t i = 0; i < origins_.size(); ++i) {
      find_origin(i);
      for (const uint32_t kernel : kernels_that_compute(i)) add(i, copies[kernel]);
    }
    Duplicates result;
    for (const std::set<uint32_t>& nodes : copies) result.emplace_back(nodes.begin(), nodes.end());
    return result;
  }

 private:
  struct Reader {
    uint32_t node, input;
    bool direct;  ///< not through views
  };
  /// What the value of a node is computed from by cheap work alone.
  struct Origin {
    bool known = false;
    bool duplicated = false;     ///< in all kernels that read it
    std::vector<ValueRef> from;  ///< large values, sorted
    size_t work = 0;
  };

  uint32_t cluster_of(uint32_t node) const { return clustering_.cluster_of(node); }
  int64_t elements(uint32_t node) const { return graph_.nodes[node].outputs[0].shape.elements(); }
  int64_t bytes(ValueRef v) const { return graph_.spec(v).bytes(); }
  /// Whether an operand of a node has about as many elements as its result.
  bool is_large(uint32_t of, ValueRef operand) const {
    return graph_.spec(operand).shape.elements() > elements(of) / small_part;
  }

  void find_readers() {
    readers_.resize(graph_.nodes.size());
    is_result_.assign(graph_.nodes.size(), false);
    kept_.assign(graph_.nodes.size(), false);
    for (const ValueRef& result : graph_.results) is_result_[clustering_.views().node_of(result)] = true;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.op->is_view()) continue;
      for (uint32_t k = 0; k < n.inputs.size(); ++k) {
        if (!n.op->reads_elements(k)) continue;
        const ValueRef source = clustering_.views().value_of(n.inputs[k]);
        readers_[source.node].push_back({i, k, source == n.inputs[k]});
        if (n.tag > graph_.nodes[source.node].tag) kept_[source.node] = true;
        if (cluster_of(i) != Clustering::none && cluster_of(source.node) != cluster_of(i) &&
            is_large(i, n.inputs[k]))
          reads_[cluster_of(i)].insert(source);
      }
    }
  }

  /// Returns true if the kernels in which it is write the value.
  bool is_stored(ValueRef v) const {
    if (cluster_of(v.node) == Clustering::none || is_result_[v.node]) return true;
    if (origins_[v.node].duplicated) return false;
    return std::ranges::any_of(readers_[v.node], [&](const Reader& reader) {
      return cluster_of(reader.node) != cluster_of(v.node);
    });
  }

  /// Whether a kernel that computes node i for another one computes this operand, too, instead of reading it.
  bool comes_along(uint32_t i, ValueRef operand) const {
    const Origin& origin = origins_[operand.node];
    return is_large(i, operand) && clustering_.views().value_of(operand) == operand && origin.known &&
           (origin.duplicated || !is_stored(operand));
  }

  void find_origin(uint32_t i) {
    const GraphNode& n = graph_.nodes[i];
    Origin& origin = origins_[i];
    if (cluster_of(i) == Clustering::none || clustering_.kind(i) != Instruction::Kind::map ||
        clustering_.extent(i) != Extent::full || !is_cheap(*n.op))
      return;
    origin.work = 1;
    std::set<ValueRef> from;
    for (uint32_t k = 0; k < n.inputs.size(); ++k) {
      if (!n.op->reads_elements(k) || !is_large(i, n.inputs[k]) || fill_of(graph_, n.inputs[k])) continue;
      const ValueRef source = clustering_.views().value_of(n.inputs[k]);
      if (comes_along(i, n.inputs[k])) {
        const Origin& before = origins_[source.node];
        from.insert(before.from.begin(), before.from.end());
        origin.work += before.work;
      } else if (is_stored(source) && !graph_.nodes[source.node].op->traits().anchors_epilogue) {
        from.insert(source);  // a product takes in the only kernel that reads it
      } else {
        return;
      }
    }
    origin.from.assign(from.begin(), from.end());
    origin.known = origin.work <= most_work && !from.empty();
  }

  /// Whether the kernel of a reader can compute node i: it has the same domain. Updates stay alike, so that
  /// they can be grouped.
  bool can_have_copy(uint32_t i, const Reader& reader) const {
    const uint32_t cluster = cluster_of(reader.node);
    return cluster != Clustering::none && reader.direct && graph_.nodes[reader.node].tag != Tag::update &&
           clustering_.clusters()[cluster].elements == elements(i);
  }

  /// The other kernels that compute a value again instead of reading it.
  std::set<uint32_t> kernels_that_compute(uint32_t i) {
    Origin& origin = origins_[i];
    if (!origin.known) return {};
    bool all = !is_result_[i];
    std::set<uint32_t> kernels;  // that read the value
    for (const Reader& reader : readers_[i]) {
      if (cluster_of(reader.node) == cluster_of(i)) continue;
      if (can_have_copy(i, reader))
        kernels.insert(cluster_of(reader.node));
      else
        all = false;
    }
    if (kernels.empty()) return {};
    const ValueRef value{i, 0};
    const auto count = static_cast<int64_t>(kernels.size());
    int64_t stored = (all ? 1 + count : count) * bytes(value), computed = 0;
    for (const uint32_t kernel : kernels) {
      const std::set<ValueRef>& reads = reads_[kernel];
      if (clustering_.clusters()[kernel].members.size() + origin.work > most_to_extend ||
          reads.size() + origin.from.size() > most_operands)
        return {};
      for (const ValueRef& source : origin.from)
        if (!reads.contains(source)) computed += bytes(source);
    }
    if (computed >= stored) return {};
    // What is kept for the gradient must not become more.
    if (kept_[i]) {
      int64_t more = all ? -bytes(value) : 0;
      for (const ValueRef& source : origin.from)
        if (!kept_[source.node]) more += bytes(source);
      if (more > 0) return {};
      for (const ValueRef& source : origin.from) kept_[source.node] = true;
    }
    for (const uint32_t kernel : kernels) {
      reads_[kernel].erase(value);
      reads_[kernel].insert(origin.from.begin(), origin.from.end());
    }
    origin.duplicated = all;
    return kernels;
  }

  /// Adds a node to copies, with the cheap work that it is made of.
  void add(uint32_t i, std::set<uint32_t>& copies) const {
    if (!copies.insert(i).second) return;
    for (const ValueRef& input : graph_.nodes[i].inputs)
      if (comes_along(i, input)) add(input.node, copies);
  }

  const Graph& graph_;
  const Clustering& clustering_;
  std::vector<Origin> origins_;
  std::vector<std::vector<Reader>> readers_;
  std::vector<bool> is_result_;
  std::vector<bool> kept_;                        // for a later phase of the step
  std::map<uint32_t, std::set<ValueRef>> reads_;  // large values that clusters read from others
};

}  // namespace

Duplicates find_duplicates(const Graph& graph, const Clustering& clustering) {
  if (graph.device == DeviceType::cpu) return Duplicates(clustering.clusters().size());
  return Duplicator(graph, clustering).run();
}

}  // namespace espalier
