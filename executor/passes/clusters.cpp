#include "espalier/executor/passes/clusters.h"

#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/executor/communicators/collective_ops.h"

namespace espalier {

namespace {

constexpr size_t most_members = 64;
constexpr size_t most_inputs = 32;
// Of values that only the kernel reads, and which would otherwise go one by one into a sum: so many are in
// memory at once. Smaller ones stay in a cache.
constexpr size_t most_large_inputs = 6;
constexpr int64_t large_bytes = int64_t{1} << 18;
// For single elements on a GPU: one kernel computes all of them, and its arguments must fit into 4 KiB.
constexpr size_t most_scalars = 400;

bool in_order(const Layout& layout) {
  const Layout axes = collapsed(layout);
  return axes.offset == 0 && (axes.strides.empty() || (axes.strides.size() == 1 && axes.strides[0] == 1));
}
/// Returns true if the layout repeats every element `row` times in succession.
bool spread_over_rows(const Layout& layout, int64_t row) {
  const Layout axes = collapsed(layout);
  if (axes.offset != 0 || axes.strides.empty() || axes.strides.back() != 0 || axes.shape[-1] != row)
    return false;
  return axes.strides.size() == 1 || (axes.strides.size() == 2 && axes.strides[0] == 1);
}

/// Whether a program of the CPU can compute the node by widening 16-bit operands: if it has such results, it
/// has such operands, or is a conversion.
bool can_widen(const Graph& graph, const GraphNode& n) {
  if (!is_half(n.outputs[0].dtype) || is_op(*n.op, "cast")) return true;
  return std::ranges::any_of(n.inputs,
                             [&](const ValueRef& input) { return is_half(graph.spec(input).dtype); });
}

/// Returns true unless the node makes int8, uint8 or int16, or reads them beside something else: programs
/// load them for casts alone.
bool may_join(const Graph& graph, const GraphNode& n) {
  if (is_small_integer(n.outputs[0].dtype)) return false;
  return n.inputs.size() == 1 || std::none_of(n.inputs.begin(), n.inputs.end(), [&](const ValueRef& input) {
           return is_small_integer(graph.spec(input).dtype);
         });
}

bool is_final(Instruction::Kind kind) {
  return kind == Instruction::Kind::fold_column || kind == Instruction::Kind::fold_all;
}

}  // namespace

std::vector<Spec> computed_specs(const Graph& graph, const GraphNode& n) {
  const bool converts = graph.device == DeviceType::cpu && is_op(*n.op, "cast");
  std::vector<Spec> specs;
  for (const ValueRef& input : n.inputs) {
    specs.push_back(graph.spec(input));
    if (!converts && is_half(specs.back().dtype)) specs.back().dtype = DType::float32;
  }
  return specs;
}

Clustering::Clustering(const Graph& graph) : graph_(graph), views_(graph), contraction_(find_needs()) {
  const size_t n = graph.nodes.size();
  cluster_.assign(n, none);
  kinds_.resize(n);
  levels_.assign(n, Extent::full);
  periods_.assign(n, 0);
  for (uint32_t i = 0; i < n; ++i) describe(i);
}

/// Fills `needs_`, and returns the users of each node.
Adjacency Clustering::find_needs() {
  Adjacency::Edges edges;
  edges.reserve(2 * graph_.nodes.size());
  std::vector<uint32_t> last_user(graph_.nodes.size(), none);
  needs_.reserve(2 * graph_.nodes.size());
  first_need_.reserve(graph_.nodes.size() + 1);
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
    const GraphNode& node = graph_.nodes[i];
    first_need_.push_back(static_cast<uint32_t>(needs_.size()));
    const auto add_user = [&](uint32_t used) {
      if (std::exchange(last_user[used], i) != i) edges.push_back({used, i});
    };
    for (uint32_t k = 0; k < node.inputs.size(); ++k) {
      if (node.op->reads_elements(k)) {
        needs_.push_back({views_.value_of(node.inputs[k]), k});
        add_user(needs_.back().source.node);
      } else if (node.op->effect() == Effect::communicates) {
        add_user(node.inputs[k].node);  // depends on the previous one, though it does not read its value
      }
    }
  }
  first_need_.push_back(static_cast<uint32_t>(needs_.size()));
  return Adjacency(graph_.nodes.size(), edges);
}

void Clustering::describe(uint32_t i) {
  const GraphNode& n = graph_.nodes[i];
  if (n.outputs.size() != 1 || n.op->is_leaf() || n.op->feed() || n.inputs.empty()) return;
  if (!may_join(graph_, n)) return;
  if (graph_.device == DeviceType::cpu && !can_widen(graph_, n)) return;
  const std::vector<Spec> computed = computed_specs(graph_, n);
  InputSpecs specs;
  for (const Spec& spec : computed) specs.push_back(&spec);
  Cluster one{{i}, n.outputs[0].shape.elements(), 0};
  const ElementLoops loops = n.op->loops(specs);
  // The interpreter of the CPU calls row functions, kernels of a GPU contain functors.
  const bool has_body =
      graph_.device == DeviceType::cpu ? static_cast<bool>(loops.row) : !loops.functor.empty();
  if (n.op->is_pointwise() && has_body) {
    kinds_[i] = Instruction::Kind::map;
  } else if (loops.whole_row) {
    kinds_[i] = Instruction::Kind::whole_row;
    one.row = n.outputs[0].shape[-1];
    if (one.row > longest_row) return;
  } else if (const auto folding = n.op->folding(specs);
             folding && is_real(specs[0]->dtype) &&
             (graph_.device != DeviceType::cpu || !is_half(graph_.spec(n.inputs[0]).dtype))) {
    const Shape& in = specs[0]->shape;
    const auto rank = static_cast<int64_t>(in.rank()), axes = static_cast<int64_t>(folding->axes.size());
    if (axes == 0) return;
    one.elements = in.elements();
    const int64_t kept = n.outputs[0].shape.elements();
    if (kept == 0 || one.elements == 0) return;
    const bool averages = folding->fold == Fold::sum || folding->fold == Fold::mean;
    if (axes == rank) {
      if (!averages) return;
      kinds_[i] = Instruction::Kind::fold_all;
      levels_[i] = Extent::uniform;
    } else if (folding->axes[0] == rank - axes) {  // the last axes
      kinds_[i] = Instruction::Kind::fold_row;
      levels_[i] = Extent::row;
      one.row = one.elements / kept;
      if (one.row > longest_row) return;
    } else if (folding->axes[static_cast<size_t>(axes) - 1] == axes - 1) {  // the first axes
      if (!averages) return;
      kinds_[i] = Instruction::Kind::fold_column;
      levels_[i] = Extent::row;  // not a real extent: no instruction of the kernel may read it
      periods_[i] = kept;
    } else {
      return;
    }
  } else {
    return;
  }
  if (one.elements == 0) return;
  cluster_[i] = static_cast<uint32_t>(clusters_.size());
  clusters_.push_back(std::move(one));
  most_needs_.push_back(inputs_of(cluster_[i], cluster_[i]));
}

bool Clustering::fits_edge(int64_t row, uint32_t node, const Need& need) const {
  const uint32_t producer = need.source.node;
  if (is_final(kinds_[producer])) return false;
  const bool is_map = kinds_[node] == Instruction::Kind::map;
  const Extent wanted = is_map ? levels_[node] : Extent::full;
  const GraphNode& n = graph_.nodes[node];
  const Shape& shape = is_map ? n.outputs[0].shape : graph_.spec(n.inputs[need.input]).shape;
  const Extent given = levels_[producer];
  if (given == Extent::uniform) return true;
  const Layout layout = broadcast_layout(views_.of(n.inputs[need.input]).layout, shape);
  if (given == wanted) return in_order(layout);
  return given == Extent::row && wanted == Extent::full && spread_over_rows(layout, row);
}

/// Returns true if all edges inside the two clusters together can be internal. Those inside one of them can,
/// unless the extents of its members have `changed`.
bool Clustering::fits_levels(uint32_t first, uint32_t second, int64_t row,
                             std::optional<uint32_t> changed) const {
  for (const uint32_t own : {first, second})
    for (const uint32_t node : clusters_[own].members)
      for (const Need& need : needs(node)) {
        const uint32_t from = cluster_[need.source.node];
        if ((from == first || from == second) && (from != own || changed == own) &&
            !fits_edge(row, node, need))
          return false;
      }
  return true;
}

/// The number of different values that members of two clusters, or of one, read from others.
size_t Clustering::inputs_of(uint32_t first, uint32_t second) const {
  std::vector<ValueRef> inputs;
  const auto add = [&](uint32_t cluster) {
    for (const uint32_t node : clusters_[cluster].members)
      for (const Need& need : needs(node))
        if (const uint32_t from = cluster_[need.source.node]; from != first && from != second)
          inputs.push_back(graph_.nodes[node].inputs[need.input]);
  };
  add(first);
  if (second != first) add(second);
  std::sort(inputs.begin(), inputs.end());
  return static_cast<size_t>(std::unique(inputs.begin(), inputs.end()) - inputs.begin());
}

/// Whether the two clusters together would read many large values that nothing else reads.
bool Clustering::collects_values(uint32_t first, uint32_t second) const {
  std::vector<ValueRef> inputs;
  const auto inside = [&](uint32_t node) { return cluster_[node] == first || cluster_[node] == second; };
  for (const uint32_t cluster : {first, second})
    for (const uint32_t node : clusters_[cluster].members)
      for (const Need& need : needs(node)) {
        const ValueRef& input = graph_.nodes[node].inputs[need.input];
        const GraphNode& source = graph_.nodes[need.source.node];
        if (!inside(need.source.node) && !source.op->is_leaf() && graph_.spec(input).bytes() >= large_bytes &&
            std::ranges::all_of(contraction_.users(need.source.node), inside))
          inputs.push_back(need.source);
      }
  std::sort(inputs.begin(), inputs.end());
  return std::unique(inputs.begin(), inputs.end()) - inputs.begin() > ptrdiff_t{most_large_inputs};
}

bool Clustering::used_only_by(uint32_t producer, uint32_t consumer) const {
  for (const uint32_t node : clusters_[producer].members)
    for (const uint32_t user : contraction_.users(node)) {
      const bool inside = cluster_[user] == producer || cluster_[user] == consumer;
      if (!inside && !graph_.nodes[user].op->has_side_effects()) return false;
    }
  return true;
}

bool Clustering::try_join(uint32_t first, uint32_t second) {
  const Cluster &a = clusters_[first], &b = clusters_[second];
  const bool scalars = a.elements == 1 && b.elements == 1;
  const bool many = scalars && graph_.device != DeviceType::cpu;
  const size_t members = many ? most_scalars : most_members, inputs = many ? most_scalars : most_inputs;
  if (a.members.size() + b.members.size() > members) return false;
  if (std::max(most_needs_[first], most_needs_[second]) > members + inputs) return false;  // too many inputs
  // Updates of different parameters, though they share a learning rate, stay separate kernels of one form,
  // which can be grouped.
  if (scalars && graph_.nodes[a.members.back()].tag == Tag::update && !used_only_by(first, second))
    return false;
  const Cluster& large = a.elements >= b.elements ? a : b;
  const Cluster& small = a.elements >= b.elements ? b : a;
  const int64_t row = std::max(a.row, b.row);
  std::optional<Extent> becomes;  // the new extent of the smaller cluster's members
  if (a.elements == b.elements) {
    if (a.row && b.row && a.row != b.row) return false;
  } else if (small.row) {
    return false;
  } else if (small.elements == 1 && &small == &a) {
    if (!used_only_by(first, second)) return false;
    becomes = Extent::uniform;
  } else if (large.row && small.elements == large.elements / large.row) {
    becomes = Extent::row;
  } else {
    return false;
  }
  const std::vector<uint32_t> changed = becomes ? small.members : std::vector<uint32_t>();
  for (const uint32_t node : changed) {
    if (kinds_[node] != Instruction::Kind::map) return false;
  }
  std::vector<Extent> before;
  for (const uint32_t node : changed) {
    before.push_back(levels_[node]);
    levels_[node] = *becomes;
  }
  const std::optional<uint32_t> whose = becomes ? std::optional(&small == &a ? first : second) : std::nullopt;
  if (!fits_levels(first, second, row, whose) || inputs_of(first, second) > inputs ||
      (large.elements * 8 >= large_bytes && collects_values(first, second)) ||
      !contraction_.join(a.members[0], b.members[0])) {
    for (size_t i = 0; i < changed.size(); ++i) levels_[changed[i]] = before[i];
    return false;
  }
  Cluster joined{{}, std::max(a.elements, b.elements), row};
  std::merge(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
             std::back_inserter(joined.members));
  for (const uint32_t node : b.members) cluster_[node] = first;
  clusters_[second] = {};
  clusters_[first] = std::move(joined);
  most_needs_[first] = std::max(most_needs_[first], most_needs_[second]);
  return true;
}

void Clustering::join_tagged(bool same_tag) {
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
    if (cluster_[i] == none) continue;
    uint32_t refused = none;  // the cluster that was tried last, in vain
    for (const Need& need : needs(i)) {
      const uint32_t producer = need.source.node;
      const uint32_t from = cluster_[producer], to = cluster_[i];
      if (from == none || from == to || from == refused) continue;
      if (same_tag && graph_.nodes[producer].tag != graph_.nodes[i].tag) continue;
      refused = try_join(from, to) ? none : from;
    }
  }
}

void Clustering::join() {
  for (int round = 0; round < 2; ++round) join_tagged(true);
  for (int round = 0; round < 2; ++round) join_tagged(false);
}

}  // namespace espalier
