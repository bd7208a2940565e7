#include "espalier/executor/plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "espalier/core/error.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/plan/placement.h"
#include "espalier/executor/sharding/gradient_bucket.h"

namespace espalier {

namespace {

class Planner {
 public:
  Planner(const Graph& graph, const MemoryRules& rules) : graph_(graph), rules_(rules) {
    const size_t n = graph.nodes.size();
    plan_.places.resize(n);
    plan_.runs.assign(n, false);
    plan_.in_place.assign(n, false);
    plan_.workspaces.resize(n);
    first_output_.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
      plan_.places[i] = SmallVector<Place, 1>(graph.nodes[i].outputs.size());
      first_output_.push_back(outputs_);
      outputs_ += graph.nodes[i].outputs.size();
    }
    last_to_refuse_ = last_to_refuse(graph);
  }

  MemoryPlan run() {
    find_last_uses();
    find_leaf_uses();
    lay_out_buckets();
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      place(i);
      add_workspace(i);
    }
    return std::move(plan_);
  }

 private:
  const GraphNode& node(uint32_t i) const { return graph_.nodes[i]; }

  /// Whether node i's output 0 is a view of its input 0, given where that lies.
  std::optional<Layout> view_of(uint32_t i) const {
    const GraphNode& n = node(i);
    if (!n.op->is_view()) return std::nullopt;
    return n.op->view(place_of(n.inputs[0]).layout, n.outputs[0]);
  }
  const Place& place_of(ValueRef v) const { return plan_.places[v.node][v.output]; }
  /// The number of a value, among the outputs of all nodes.
  size_t number_of(ValueRef v) const { return first_output_[v.node] + v.output; }
  int64_t last_use(uint32_t node, uint32_t output) const { return last_use_[number_of({node, output})]; }

  /// Until which step each value is read, itself or through views of it.
  void find_last_uses() {
    const auto end = static_cast<int64_t>(graph_.nodes.size());
    last_use_.reserve(outputs_);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      last_use_.insert(last_use_.end(), node(i).outputs.size(), static_cast<int64_t>(i));
    for (const ValueRef& result : graph_.results) last_use_[number_of(result)] = end;
    for (auto i = static_cast<uint32_t>(graph_.nodes.size()); i-- > 0;) {
      const GraphNode& n = graph_.nodes[i];
      for (uint32_t k = 0; k < n.inputs.size(); ++k) {
        if (!n.op->reads_elements(k)) continue;
        int64_t& last = last_use_[number_of(n.inputs[k])];
        // What reads a view reads what is behind it; whether it is one is known later, so views count always.
        const int64_t until = n.op->is_view() && k == 0       ? last_use(i, 0)
                              : n.op->traits().aliases_inputs ? last_use(i, k)
                                                              : static_cast<int64_t>(i);
        last = std::max(last, until);
      }
    }
  }

  /// The assignments of each value, and the nodes that may read each leaf, itself or through views.
  void find_leaf_uses() {
    const auto n = static_cast<uint32_t>(graph_.nodes.size());
    assignments_.resize(outputs_);
    leaf_readers_.resize(n);
    std::vector<uint32_t> behind(n);  // what a view shows, if all views on the way to it lie in it
    for (uint32_t i = 0; i < n; ++i) {
      behind[i] = node(i).op->is_view() ? behind[node(i).inputs[0].node] : i;
      const auto& inputs = node(i).inputs;
      if (node(i).op->has_side_effects()) {
        Assigned& value = assignments_[number_of(inputs[1])];
        value = {i, value.count + 1};
      }
      for (size_t k = 0; k < inputs.size(); ++k)
        if (const uint32_t at = behind[inputs[k].node];
            node(at).leaf.defined() && node(i).op->reads_elements(k))
          leaf_readers_[at].emplace_back(i, k);
    }
  }

  /// One buffer for all gradients of a bucket; the ops that compute them write into it where they can.
  void lay_out_buckets() {
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (const GradientBucket* bucket = as_bucket(*node(i).op))
        lay_out_bucket(i, *bucket);
      else if (waits_for_gradients(*node(i).op))
        plan_.gradient_wait = i;
  }
  void lay_out_bucket(uint32_t at, const GradientBucket& op) {
    const GraphNode& n = node(at);
    const std::vector<Variable>& parameters = op.parameters();
    BucketPlan bucket{
        .node = at, .buffer = static_cast<uint32_t>(plan_.buffers.size()), .scattered = op.scattered()};
    ArenaBuffer buffer{0, at, at};
    for (uint32_t k = 0; k < parameters.size(); ++k) {
      const Spec& spec = n.outputs[k];
      const auto maker = can_be_made_in_bucket(at, n.inputs[k]);
      Layout layout(spec.shape);
      layout.offset = buffer.bytes / static_cast<int64_t>(size_of(spec.dtype));
      in_bucket_[{at, k}] = {Place::In::arena, bucket.buffer, layout};
      if (maker) {
        layout = Layout(graph_.spec(*maker).shape);
        layout.offset = buffer.bytes / static_cast<int64_t>(size_of(spec.dtype));
        in_bucket_[*maker] = {Place::In::arena, bucket.buffer, layout};
        buffer.first = std::min<int64_t>(buffer.first, maker->node);
        plan_.in_place[at] = true;
      }
      bucket.members.push_back({parameters[k], buffer.bytes, aligned_bytes(spec.bytes()), !maker});
      buffer.bytes += aligned_bytes(spec.bytes());
      buffer.last = std::max(buffer.last, last_use(at, k));
    }
    bucket.bytes = buffer.bytes;
    plan_.buffers.push_back(buffer);
    plan_.buckets.push_back(std::move(bucket));
  }
  /// The kernel's output that is this gradient, itself or through views that keep the order of its elements,
  /// if it is not read later and has no other place.
  std::optional<ValueRef> can_be_made_in_bucket(uint32_t bucket, ValueRef gradient) const {
    if (!rules_.in_place) return std::nullopt;
    while (node(gradient.node).op->is_view()) {
      const GraphNode& n = node(gradient.node);
      const Spec& from = graph_.spec(n.inputs[0]);
      const auto layout = n.op->view(Layout(from.shape), n.outputs[0]);
      if (!layout) break;
      if (!layout->contiguous() || layout->offset != 0 || from.shape.elements() != layout->shape.elements())
        return std::nullopt;
      gradient = n.inputs[0];
    }
    const GraphNode& n = node(gradient.node);
    if (n.op->is_leaf() || n.op->feed() || n.op->has_side_effects() || in_bucket_.count(gradient) ||
        last_use_[number_of(gradient)] != static_cast<int64_t>(bucket))
      return std::nullopt;
    return gradient;
  }

  void place(uint32_t i) {
    const GraphNode& n = node(i);
    if (n.is_constant()) {
      plan_.places[i][0] = {Place::In::constant, i, n.constant->layout()};
    } else if (n.leaf.defined()) {
      plan_.places[i][0] = {Place::In::leaf, i, Layout(n.outputs[0].shape)};
    } else if (n.op->is_leaf()) {
      plan_.places[i][0].layout = Layout(n.outputs[0].shape);  // a shape alone
    } else if (n.op->has_side_effects()) {
      const Place& value = place_of(n.inputs[1]);
      plan_.places[i][0] = place_of(n.inputs[0]);
      plan_.runs[i] = !(value.in == Place::In::leaf && value.index == n.inputs[0].node);
    } else if (const auto layout = view_of(i)) {
      plan_.places[i][0] = place_of(n.inputs[0]);
      plan_.places[i][0].layout = *layout;
    } else if (n.op->traits().aliases_inputs) {
      plan_.runs[i] = plan_.in_place[i] = true;
      for (uint32_t k = 0; k < n.outputs.size(); ++k) plan_.places[i][k] = place_of(n.inputs[k]);
    } else {
      plan_.runs[i] = !n.op->feed();
      taken_.clear();
      for (uint32_t k = 0; k < n.outputs.size(); ++k)
        if (const auto at = in_bucket_.find({i, k}); at != in_bucket_.end())
          plan_.places[i][k] = at->second;
        else if (!(rules_.in_place && (over_a_leaf(i, k) || over_an_input(i, k))))
          fresh(i, k);
    }
  }

  void fresh(uint32_t i, uint32_t k) {
    const GraphNode& n = node(i);
    ArenaBuffer buffer{aligned_bytes(n.outputs[k].bytes()), static_cast<int64_t>(i), last_use(i, k)};
    if (n.op->feed()) buffer.first = 0;  // batches are there before the first step
    plan_.places[i][k] = {Place::In::arena, static_cast<uint32_t>(plan_.buffers.size()),
                          Layout(n.outputs[k].shape)};
    plan_.buffers.push_back(buffer);
  }

  /// The region that the kernel of node i asks for, which lies beside its operands.
  void add_workspace(uint32_t i) {
    const GraphNode& n = node(i);
    if (!rules_.workspaces || !plan_.runs[i] || n.op->has_side_effects()) return;  // these run as copies
    PlannedCall call{graph_.device, {}, {}, {n.outputs.begin(), n.outputs.size()}};
    for (const ValueRef& input : n.inputs) {
      call.inputs.push_back(&graph_.spec(input));
      call.layouts.push_back(&place_of(input).layout);
    }
    const int64_t bytes = aligned_bytes(n.op->workspace_bytes(call));
    if (bytes == 0) return;
    plan_.workspaces[i] = static_cast<uint32_t>(plan_.buffers.size());
    plan_.buffers.push_back({bytes, i, i});
  }

  /// Whether the op may write output k over an input, which lies without gaps and has as many elements.
  bool can_write_over(const GraphNode& n, uint32_t k, size_t input) const {
    const Spec &in = graph_.spec(n.inputs[input]), &out = n.outputs[k];
    return n.op->can_write_over(k, input) && n.op->reads_elements(input) &&
           size_of(in.dtype) == size_of(out.dtype) && (rules_.over_other_types || in.dtype == out.dtype) &&
           in.shape.elements() == out.shape.elements() && place_of(n.inputs[input]).layout.contiguous();
  }

  /// The new value of a leaf is written into the leaf, if all readers have read the old one by then.
  bool over_a_leaf(uint32_t i, uint32_t output) {
    const uint32_t assignment = only_assignment_of({i, output});
    if (!assignment || i < last_to_refuse_) return false;
    if (node(i).op->feed()) return false;  // batches are there before the leaf's readers
    const uint32_t leaf = node(assignment).inputs[0].node;
    for (const auto& [r, k] : leaf_readers_[leaf]) {
      const GraphNode& reader = node(r);
      if (!lies_in_leaf(reader.inputs[k], leaf, i)) continue;
      if (r > i && r != assignment) return false;
      if (r == i && !(can_write_over(reader, output, k) && place_of(reader.inputs[k]).layout.offset == 0))
        return false;
    }
    for (const ValueRef& result : graph_.results)
      if (result.node == leaf || (result.node < i && lies_in_leaf(result, leaf, i))) return false;
    plan_.places[i][output] = {Place::In::leaf, leaf, Layout(node(i).outputs[output].shape)};
    plan_.in_place[i] = true;
    return true;
  }
  /// Whether a value that is placed before step i, or a view of one to come, shares the leaf's buffer.
  bool lies_in_leaf(ValueRef v, uint32_t leaf, uint32_t i) const {
    while (v.node >= i && node(v.node).op->is_view()) v = node(v.node).inputs[0];
    if (v.node == leaf) return true;
    if (v.node >= i) return false;
    const Place& place = place_of(v);
    return place.in == Place::In::leaf && place.index == leaf;
  }
  /// The assignment that reads a value, if there is exactly one.
  uint32_t only_assignment_of(ValueRef value) const {
    const Assigned& assigned = assignments_[number_of(value)];
    return assigned.count == 1 ? assigned.by : 0;
  }

  /// The output takes the buffer of an input that is not read later.
  bool over_an_input(uint32_t i, uint32_t output) {
    const GraphNode& n = node(i);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Place& in = place_of(n.inputs[k]);
      if (in.in != Place::In::arena || !can_write_over(n, output, k)) continue;
      if (std::find(taken_.begin(), taken_.end(), in.index) != taken_.end()) continue;
      ArenaBuffer& buffer = plan_.buffers[in.index];
      if (buffer.last != static_cast<int64_t>(i) || in.layout.offset != 0 ||
          buffer.bytes != aligned_bytes(n.outputs[output].bytes()))
        continue;
      // Another operand may show the same buffer in another order.
      bool alone = true;
      for (size_t other = 0; other < n.inputs.size(); ++other) {
        const Place& place = place_of(n.inputs[other]);
        if (other != k && n.op->reads_elements(other) && place.in == Place::In::arena &&
            place.index == in.index)
          alone &= can_write_over(n, output, other) && place.layout.offset == 0;
      }
      if (!alone) continue;
      buffer.last = last_use(i, output);
      taken_.push_back(in.index);
      plan_.places[i][output] = {Place::In::arena, in.index, Layout(n.outputs[output].shape)};
      plan_.in_place[i] = true;
      return true;
    }
    return false;
  }

  const Graph& graph_;
  const MemoryRules rules_;
  MemoryPlan plan_;
  std::vector<size_t> first_output_;  // by node: the number of its first output
  size_t outputs_ = 0;
  std::vector<int64_t> last_use_;  // by output
  std::map<ValueRef, Place> in_bucket_;
  std::vector<uint32_t> taken_;  // buffers of inputs which outputs of the present node were given
  struct Assigned {
    uint32_t by = 0, count = 0;
  };
  std::vector<Assigned> assignments_;  // of each output: the last, and how many
  std::vector<std::vector<std::pair<uint32_t, size_t>>> leaf_readers_;  // for each leaf: nodes and operands
  uint32_t last_to_refuse_ =
      0;  // the last kernel which may look at values and throw: no leaf is written before it
};

/// Workspaces may come last, for gaps that are left where they are needed: whichever takes less.
int64_t place_values_and_workspaces(MemoryPlan& plan) {
  const int64_t together = place_best_fit(plan.buffers);
  std::vector<bool> last(plan.buffers.size(), false);
  for (const auto& buffer : plan.workspaces)
    if (buffer) last[*buffer] = true;
  if (!std::ranges::count(last, true)) return together;
  std::vector<ArenaBuffer> buffers = plan.buffers;
  std::vector<size_t> order = by_size(buffers);
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !last[i]; });
  const int64_t apart = place_in_order(buffers, order);
  if (apart < together) plan.buffers = std::move(buffers);
  return std::min(apart, together);
}

}  // namespace

namespace {

bool may_refuse(const Op& op) {
  const bool looks = op.traits().reads.bits != 0 || op.effect() == Effect::communicates;
  return op.kind() == OpKind::other && looks && !op.traits().only_copies && !op.traits().takes_any_values &&
         op.effect() != Effect::writes_leaf;
}

}  // namespace

uint32_t last_to_refuse(const Graph& graph) {
  // Which indices choose of a tensor of which shape, and how: whom errors name is no matter. A value in
  // another shape is the same.
  const auto choice = [&graph, views = Views(graph)](const GraphNode& n, ValueRef indices, const Shape& of,
                                                     bool from_end) {
    const ViewSource seen = views.of(indices);
    if (seen.layout.contiguous() && seen.layout.offset == 0 &&
        seen.layout.shape.elements() == graph.spec(seen.value).shape.elements())
      indices = seen.value;
    Attributes how = n.op->attributes();
    std::erase_if(how, [](const auto& a) { return a.first == "function" || a.first == "from_end"; });
    return fmt::format("{}.{} {} {} {}", indices.node, indices.output, of.str(), to_string(how), from_end);
  };
  const auto from_end = [](const Op& op) {
    const Attributes all = op.attributes();
    const auto found = std::ranges::find(all, "from_end", [](const auto& a) { return a.first; });
    return found == all.end() || std::get<bool>(found->second);
  };
  std::set<std::string> taken;
  const auto take = [&](const GraphNode& n, ValueRef indices) {
    const Shape& of = graph.spec(n.inputs[0]).shape;
    taken.insert(choice(n, indices, of, true));
    if (!from_end(*n.op)) taken.insert(choice(n, indices, of, false));
  };
  uint32_t last = 0;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    const OpTraits& traits = n.op->traits();
    if (traits.finds_indices) take(n, {i, 0});
    if (!may_refuse(*n.op)) continue;
    if (traits.adds_back && taken.contains(choice(n, n.inputs[1], n.outputs[0].shape, from_end(*n.op))))
      continue;
    last = i;
    if (traits.picks_from.contains(0) && n.inputs.size() == 2) take(n, n.inputs[1]);
  }
  return last;
}

WorkspaceSizes workspace_sizes(const MemoryPlan& plan) {
  WorkspaceSizes sizes;
  for (const auto& buffer : plan.workspaces)
    if (buffer) {
      ++sizes.count;
      sizes.largest = std::max(sizes.largest, plan.buffers[*buffer].bytes);
    }
  return sizes;
}

MemoryPlan plan_lifetimes(const Graph& graph, const MemoryRules& rules) {
  return Planner(graph, rules).run();
}

MemoryPlan plan_memory(const Graph& graph, const MemoryRules& rules, int64_t budget) {
  MemoryPlan plan = plan_lifetimes(graph, rules);
  for (const ArenaBuffer& buffer : plan.buffers) plan.all_bytes += buffer.bytes;
  plan.arena_bytes = place_values_and_workspaces(plan);
  plan.largest_live_bytes = largest_live_set(plan.buffers);
  if (budget > 0 && plan.arena_bytes > budget)
    throw OutOfMemory(
        fmt::format("get_executor: the memory budget is {} bytes, and the least that was reached is {}",
                    budget, plan.arena_bytes));
  return plan;
}

}  // namespace espalier
