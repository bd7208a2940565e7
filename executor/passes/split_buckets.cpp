#include <algorithm>
#include <numeric>

#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

struct Part {
  uint32_t bucket;              // the node that is cut
  std::vector<uint32_t> slots;  // of it, in its order
  uint32_t behind;              // the node that completes them
};

int64_t bytes_of(const Spec& spec) {
  return spec.shape.elements() * static_cast<int64_t>(size_of(spec.dtype));
}

/// The parts of one bucket, in the order in which they are complete.
std::vector<Part> parts_of(const Graph& graph, uint32_t bucket, int64_t bytes) {
  const GraphNode& n = graph.nodes[bucket];
  std::vector<uint32_t> order(n.inputs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return n.inputs[a].node < n.inputs[b].node; });
  int64_t left = 0;
  for (const Spec& spec : n.outputs) left += bytes_of(spec);
  std::vector<Part> parts;
  int64_t filled = bytes;  // of the last part
  for (const uint32_t slot : order) {
    if (filled >= bytes && (left >= bytes || parts.empty())) {  // what is left must be worth one
      parts.push_back({bucket, {}, 0});
      filled = 0;
    }
    parts.back().slots.push_back(slot);
    parts.back().behind = n.inputs[slot].node;
    filled += bytes_of(n.outputs[slot]);
    left -= bytes_of(n.outputs[slot]);
  }
  for (Part& part : parts) std::sort(part.slots.begin(), part.slots.end());
  return parts;
}

/// Whether a bucket stands as early as it can: behind what completes it, and perhaps another bucket.
bool is_early(const Graph& graph, uint32_t bucket, uint32_t behind) {
  for (uint32_t i = behind + 1; i < bucket; ++i)
    if (!as_bucket(*graph.nodes[i].op)) return false;
  return true;
}

}  // namespace

bool split_buckets(Graph& graph, int64_t bytes) {
  std::vector<Part> parts;
  std::vector<bool> is_cut(graph.nodes.size(), false);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GradientBucket* bucket = as_bucket(*graph.nodes[i].op);
    if (!bucket || bucket->scattered()) continue;
    std::vector<Part> own = parts_of(graph, i, bytes);
    if (own.size() == 1 && is_early(graph, i, own[0].behind)) continue;
    is_cut[i] = true;
    parts.insert(parts.end(), own.begin(), own.end());
  }
  if (parts.empty()) return false;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.behind < b.behind; });

  std::vector<GraphNode> nodes;
  std::vector<uint32_t> position(graph.nodes.size());
  std::map<ValueRef, ValueRef> moved;  // from the old bucket's outputs to those of its parts
  const auto now = [&](ValueRef v) {
    const auto found = moved.find(v);
    return found != moved.end() ? found->second : ValueRef{position[v.node], v.output};
  };
  size_t next = 0;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_cut[i]) {
      for (ValueRef& input : graph.nodes[i].inputs) input = now(input);
      position[i] = static_cast<uint32_t>(nodes.size());
      nodes.push_back(std::move(graph.nodes[i]));
    }
    for (; next < parts.size() && parts[next].behind == i; ++next) {
      const Part& part = parts[next];
      const GraphNode& old = graph.nodes[part.bucket];
      const auto& all = as_bucket(*old.op)->parameters();
      GraphNode n;
      std::vector<Variable> whose;
      for (const uint32_t slot : part.slots) {
        moved[{part.bucket, slot}] = {static_cast<uint32_t>(nodes.size()),
                                      static_cast<uint32_t>(whose.size())};
        whose.push_back(all[slot]);
        n.inputs.push_back(now(old.inputs[slot]));
        n.outputs.push_back(old.outputs[slot]);
      }
      n.op = std::make_shared<GradientBucket>(std::move(whose));
      n.tag = old.tag;
      n.where = old.where;
      nodes.push_back(std::move(n));
    }
  }
  graph.nodes = std::move(nodes);
  for (ValueRef& result : graph.results) result = now(result);
  return true;
}

}  // namespace espalier
