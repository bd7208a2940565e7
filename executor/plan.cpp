#include "espalier/executor/plan.h"

#include <fmt/format.h>

#include <ostream>

#include "espalier/core/error.h"
#include "espalier/executor/plan/plan_data.h"
#include "espalier/executor/report/report.h"

namespace espalier {

int64_t Plan::steps() const {
  int64_t steps = 0;
  for (const bool runs : data_->memory.runs) steps += runs;
  return steps;
}
int64_t Plan::arena_bytes() const { return data_->memory.arena_bytes; }
int64_t Plan::largest_live_bytes() const { return data_->memory.largest_live_bytes; }
int64_t Plan::leaf_bytes() const {
  int64_t bytes = 0;
  for (const GraphNode& n : data_->graph.nodes)
    if (n.leaf.defined()) bytes += n.outputs[0].bytes();
  return bytes;
}
const std::vector<PassReport>& Plan::passes() const { return data_->passes; }

Prediction Plan::predict(const CostInputs& inputs) const { return internal::predict(*data_, inputs); }
std::vector<Prediction> Plan::scaling(const CostInputs& inputs, Scaling how, int64_t up_to) const {
  return internal::scaling(*data_, inputs, how, up_to);
}

namespace {

std::string text_of(const PlanData& plan, const Place& place) {
  switch (place.in) {
    case Place::In::nowhere: return "nowhere";
    case Place::In::leaf: return fmt::format("%{}", place.index);
    case Place::In::constant: return "constant";
    case Place::In::arena: break;
  }
  const ArenaBuffer& buffer = plan.memory.buffers[place.index];
  return fmt::format("@{}+{}", buffer.offset, buffer.bytes);
}

std::string workspace_text(const MemoryPlan& memory, uint32_t node) {
  if (!memory.workspaces[node]) return "";
  const ArenaBuffer& buffer = memory.buffers[*memory.workspaces[node]];
  return fmt::format("  workspace @{}+{}", buffer.offset, buffer.bytes);
}

std::string label_of(const GraphNode& n) {
  std::string label(n.op->name());
  if (const std::string attributes = to_string(n.op->attributes()); !attributes.empty())
    label += fmt::format("({})", attributes);
  return label;
}

std::string inputs_of(const GraphNode& n) {
  std::string text;
  for (const ValueRef& input : n.inputs)
    text += input.output ? fmt::format(" %{}.{}", input.node, input.output) : fmt::format(" %{}", input.node);
  return text;
}

/// Cores of one machine, as far as it matters whether replicas pay: a core's rates, and its memory as a
/// network.
CostInputs cores() {
  return {.hardware = presets::measured_cpu(40e9, 10e9, 0.5e-6),
          .network = {.name = "memory", .levels = {{.name = "memory", .bandwidth = 8e9, .latency = 2e-6}}}};
}

/// Whether replicas on a core each are faster than one device on one core.
std::string gain_on_cores(const PlanData& plan) {
  const double together = internal::predict(plan, cores()).step;
  const double alone = internal::scaling(plan, cores(), Scaling::strong, 1)[0].step;
  return fmt::format("  on paper, a core each: step {:.1f} us; one device on one core: {:.1f} us{}\n",
                     1e6 * together, 1e6 * alone, together < alone ? "" : "; these replicas gain nothing");
}

/// What replicas exchange, and what a step would cost on known machines.
std::string text_of(const PlanData& plan, const Replication& replication) {
  const std::vector<BucketPlan>& buckets = plan.memory.buckets;
  std::string text = fmt::format("replicas: {}", replication.replicas);
  if (replication.micro_batches > 1)
    text += fmt::format(", each in {} micro-batches", replication.micro_batches);
  text += fmt::format(", {} rows together; gradients in {} bucket{}\n", replication.batch_rows,
                      buckets.size(), buckets.size() == 1 ? "" : "s");
  for (const BucketPlan& bucket : buckets)
    text += fmt::format("  {} bytes complete after %{}{}\n", bucket.bytes, bucket.node,
                        bucket.scattered ? ", each sum for its owner alone" : "");
  text += fmt::format("  all have arrived at %{}\n", plan.memory.gradient_wait);
  if (plan.graph.device == DeviceType::cpu) return text + gain_on_cores(plan);
  text += "on paper:\n";
  for (const CostInputs& inputs : presets::all()) {
    const Prediction p = internal::predict(plan, inputs);
    text += fmt::format(
        "  {:<38} step {:>9.3f} ms  exposed {:>9.3f} ms  {:>14.0f} rows/s  efficiency {:>5.1f} %  {} "
        "bytes{}\n",
        fmt::format("{}, {}", inputs.hardware.name, inputs.network.name), 1e3 * p.step, 1e3 * p.exposed,
        p.samples, 100 * p.efficiency, p.memory, p.fits ? "" : " (too many)");
  }
  return text;
}

/// What each replica keeps and updates, where they share that out.
std::string text_of(const StateOwners& owners, int replica) {
  std::string text = fmt::format("states shared out: this is replica {}; {} bytes of states that all have\n",
                                 replica, owners.shared_bytes);
  for (size_t r = 0; r < owners.state_bytes.size(); ++r) {
    text += fmt::format("  replica {}: {} bytes of states, {} of parameters:", r, owners.state_bytes[r],
                        owners.parameter_bytes[r]);
    for (size_t i = owners.begin[r]; i < owners.begin[r + 1]; ++i)
      text += fmt::format(" {}", owners.parameters[i].node()->op().name());
    text += owners.begin[r] == owners.begin[r + 1] ? " none\n" : "\n";
  }
  return text;
}

}  // namespace

std::string Plan::str() const {
  const MemoryPlan& memory = data_->memory;
  std::string text =
      fmt::format("plan: {} steps, arena {} bytes (largest live set {}, side by side {}), leaves {} bytes\n",
                  steps(), memory.arena_bytes, memory.largest_live_bytes, memory.all_bytes, leaf_bytes());
  if (const WorkspaceSizes sizes = workspace_sizes(memory); sizes.count > 0)
    text += fmt::format("workspaces: {} kernel{}, the largest {} bytes\n", sizes.count,
                        sizes.count == 1 ? "" : "s", sizes.largest);
  if (const std::string launch = data_->launch.get(); !launch.empty())
    text += fmt::format("launched as {}\n", launch);
  text += "passes:\n";
  for (const PassReport& pass : data_->passes)
    text += fmt::format("  {:<22} {:>4} -> {:>4} nodes  {:>8.3f} ms{}\n", pass.name, pass.nodes_before,
                        pass.nodes_after, 1e3 * pass.seconds, pass.changed ? "" : "  (unchanged)");
  for (const BucketPlan& bucket : memory.buckets) {
    const ArenaBuffer& buffer = memory.buffers[bucket.buffer];
    text += fmt::format("gradients: %{} @{}+{}\n", bucket.node, buffer.offset, buffer.bytes);
    for (const BucketPlan::Member& member : bucket.members)
      text += fmt::format("  @{}+{} of {}{}\n", buffer.offset + member.offset, member.bytes,
                          member.parameter.defined() ? member.parameter.node()->op().name() : "the loss",
                          member.copied ? "  (copied)" : "");
  }
  if (data_->owners()) text += text_of(*data_->owners(), data_->replication->replica);
  if (data_->replication) text += text_of(*data_, *data_->replication);
  text += "steps:\n";
  for (uint32_t i = 0; i < data_->graph.nodes.size(); ++i) {
    const GraphNode& n = data_->graph.nodes[i];
    const Place& place = memory.places[i][0];
    const char* how = memory.runs[i]             ? (memory.in_place[i] ? "in place" : "")
                      : n.op->is_view()          ? "view"
                      : n.op->has_side_effects() ? "done"
                      : n.op->feed()             ? "batch"
                                                 : "leaf";
    text +=
        fmt::format("  %{:<4} {:<34} {:<16} {:<8} {:<14} {:<20} {:<8} {:<8} {}{}\n", i, label_of(n),
                    inputs_of(n), name(n.outputs[0].dtype), n.outputs[0].shape.str(), text_of(*data_, place),
                    how, name(n.tag), line_of(n.where), workspace_text(memory, i));
  }
  return text;
}

std::string Plan::dot() const {
  std::string text =
      "digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n";
  for (uint32_t i = 0; i < data_->graph.nodes.size(); ++i) {
    const GraphNode& n = data_->graph.nodes[i];
    const char* color = n.tag == Tag::forward    ? "white"
                        : n.tag == Tag::backward ? "lightblue"
                                                 : "lightyellow";
    std::string label;
    for (const char c : label_of(n)) {
      if (c == '"' || c == '\\') label += '\\';
      label += c;
    }
    text += fmt::format("  n{} [label=\"%{} {}\\n{} {}\\n{}\", style=filled, fillcolor={}];\n", i, i, label,
                        name(n.outputs[0].dtype), n.outputs[0].shape.str(), line_of(n.where), color);
    for (size_t k = 0; k < n.inputs.size(); ++k)
      text += fmt::format("  n{} -> n{}{};\n", n.inputs[k].node, i,
                          n.op->reads_elements(k) ? "" : " [style=dashed]");
  }
  return text + "}\n";
}

void Plan::report(const std::filesystem::path& html, std::source_location where) const {
  located(where, [&] { write_report(html, *data_, nullptr); });
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << plan.str(); }

}  // namespace espalier
