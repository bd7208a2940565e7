#include <algorithm>
#include <numeric>

#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/sharding/gradient_bucket.h"

namespace espalier {

namespace {

struct Part {
  uint32_t bucket;              // the node that is split
  std::vector<uint32_t> slots;  // of the bucket, in its order
  uint32_t behind;              // the node after which all slots are computed
};

/// The parts of one bucket, in the order in which they become complete.
std::vector<Part> parts_of(const Graph& graph, uint32_t bucket, int64_t bytes) {
  const GraphNode& n = graph.nodes[bucket];
  std::vector<uint32_t> order(n.inputs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return n.inputs[a].node < n.inputs[b].node; });
  int64_t left = 0;
  for (const Spec& spec : n.outputs) left += spec.bytes();
  std::vector<Part> parts;
  int64_t filled = bytes;  // in the last part
  for (const uint32_t slot : order) {
    if (filled >= bytes && (left >= bytes || parts.empty())) {  // avoid a last part that is too small
      parts.push_back({bucket, {}, 0});
      filled = 0;
    }
    parts.back().slots.push_back(slot);
    parts.back().behind = n.inputs[slot].node;
    filled += n.outputs[slot].bytes();
    left -= n.outputs[slot].bytes();
  }
  for (Part& part : parts) std::sort(part.slots.begin(), part.slots.end());
  return parts;
}

/// Returns true if only other buckets are between a bucket and the node that completes it.
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

  GraphRewriter rewriter(graph);
  for (const Part& part : parts) {
    const GraphNode& old = graph.nodes[part.bucket];
    const auto& all = as_bucket(*old.op)->parameters();
    GraphNode n;
    std::vector<Variable> whose;
    for (const uint32_t slot : part.slots) {
      whose.push_back(all[slot]);
      n.inputs.push_back(old.inputs[slot]);
      n.outputs.push_back(old.outputs[slot]);
    }
    n.op = std::make_shared<GradientBucket>(std::move(whose));
    n.tag = old.tag;
    n.where = old.where;
    const uint32_t number = rewriter.add_after(part.behind, std::move(n));
    for (uint32_t k = 0; k < part.slots.size(); ++k)
      rewriter.replace({part.bucket, part.slots[k]}, {number, k});
  }
  for (uint32_t i = 0; i < is_cut.size(); ++i)
    if (is_cut[i]) rewriter.remove(i);
  rewriter.finish();
  return true;
}

/// Lets transfers overlap with computation.
bool split_buckets(Graph& graph, const CompileOptions& options) {
  return options.shard && options.shard->bucket_bytes > 0 &&
         split_buckets(graph, options.shard->bucket_bytes);
}

}  // namespace espalier
