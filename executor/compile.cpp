// From a tree to a plan. Read this first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#include "espalier/executor/batch_roles.h"
#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/plan_data.h"

namespace espalier {

namespace {

struct Pass {
  const char* name;
  bool (*function)(Graph&, const CompileOptions&);
};

template <bool (*pass)(Graph&)>
bool always(Graph& graph, const CompileOptions&) {
  return pass(graph);
}
bool precision(Graph& graph, const CompileOptions& options) {
  return lower_precision(graph, options.precision);
}

/// On a GPU one kernel updates all parameters, while each such product would be a kernel more.
bool fuse_sgd_on_cpu(Graph& graph, const CompileOptions& options) {
  return options.device == DeviceType::cpu && fuse_sgd(graph);
}

/// Replicas whose messages take their time send what is complete while the rest is computed.
bool split_for_overlap(Graph& graph, const CompileOptions& options) {
  return options.replica && options.replica->bucket_bytes > 0 &&
         split_buckets(graph, options.replica->bucket_bytes);
}

/// The pipeline, in order. Before it, the tree is frozen into a graph; after it, memory is planned
/// ("in_place" is part of that, and can be left out by its name). "recompute" comes last, if there is a
/// memory budget.
constexpr Pass passes[] = {
    {"dead_nodes", always<dead_nodes>},
    {"simplify", always<simplify>},
    {"fold_constants", always<fold_constants>},
    {"common_subexpressions", always<common_subexpressions>},
    {"simplify_again", always<simplify>},
    {"precision", precision},
    {"join_slices", always<join_slices>},
    {"fuse_cross_entropy", always<fuse_cross_entropy>},
    {"fuse_sgd", fuse_sgd_on_cpu},
    {"fuse_pointwise", always<fuse_pointwise>},
    {"group_updates", always<group_updates>},
    {"fuse_matmul", always<fuse_matmul>},
    {"split_buckets", split_for_overlap},
};

bool named(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Whether a node puts a sum over the batch together with what is none.
bool adds_to_sum(const GraphNode& n, const std::vector<std::vector<BatchValue>>& roles) {
  bool sums = false, others = false;
  for (const ValueRef& input : n.inputs) {
    const BatchRole in = roles[input.node][input.output].role;
    if (in == BatchRole::rows || in == BatchRole::mixed) return false;
    (in == BatchRole::sum ? sums : others) = true;
  }
  return n.op->linearity() == Linearity::together && sums && others;
}

[[noreturn]] void refuse(const GraphNode& cause, bool adds_to_sum, int replicas) {
  const std::string_view why =
      adds_to_sum
          ? "it puts a sum over the batch together with what is none, and would count that once for each "
            "replica. Let it be a mean"
          : "it is neither row by row, nor a mean or a sum over the batch. If it is a statistic of the batch "
            "that may be taken over each replica's rows, say so: get_executor({.local_statistics = true}); "
            "a custom_op says that it is .row_by_row";
  throw UnsupportedError(fmt::format(
      "get_executor: {} replicas cannot compute '{}' ({}) from a part of the batch's rows each: {}", replicas,
      cause.op->name(), line_of(cause.where), why));
}

/// What the loss and the tree's value are to the batch; throws where replicas cannot have what one device
/// has.
/// `exchanged` become the numbers of the results that must be added up over all replicas.
Replication roles_of_results(Graph& part, const Graph& other, const ReplicaOptions& replica,
                             std::vector<size_t>& exchanged) {
  const auto roles = batch_roles(part, other, {replica.rows, replica.other_rows}, replica.local_statistics);
  mark_random_rows(part, roles);
  for (const ValueRef& result : part.results) {
    const BatchValue& value = roles[result.node][result.output];
    if (value.role != BatchRole::mixed) continue;
    const GraphNode& cause = part.nodes[value.cause];
    refuse(cause, adds_to_sum(cause, roles), replica.replicas);
  }
  Replication result{.replicas = replica.replicas, .parts = replica.parts, .batch_rows = replica.batch_rows};
  const ValueRef loss = part.results[0], value = part.results[part.results.size() > 1 ? 1 : 0];
  result.averages = roles[loss.node][loss.output].role != BatchRole::sum;
  const BatchValue& of_value = roles[value.node][value.output];
  if (of_value.role == BatchRole::rows) {
    result.row_axis = of_value.axis;
    result.row_turns = of_value.in_order() ? of_value.turns : 0;
  }
  exchanged = {0};
  for (size_t i = 1; i < part.results.size(); ++i) {
    const BatchRole role = roles[part.results[i].node][part.results[i].output].role;
    if (!is_real(part.spec(part.results[i]).dtype)) continue;
    if (role == BatchRole::mean || role == BatchRole::sum) exchanged.push_back(i);
  }
  result.exchanges_value = exchanged.size() > 1;
  return result;
}

int64_t bytes_of(const Spec& spec) {
  return spec.shape.elements() * static_cast<int64_t>(size_of(spec.dtype));
}

/// The tree as a graph, in which gradients meet in a bucket if that is asked for.
Graph freeze_with_bucket(const std::vector<Variable>& results, const std::vector<Variable>& updates,
                         const FeedRows& rows, const CompileOptions& options,
                         std::optional<Replication>& replication) {
  std::vector<Variable> parameters, wanted = results;
  for (const auto& [parameter, gradient] : options.gradient_bucket) {
    parameters.push_back(parameter);
    wanted.push_back(gradient);
  }
  const auto frozen = [&](const FeedRows& sizes) {
    if (!options.replica) return freeze(wanted, updates, sizes, options.inference);
    const auto fail = [&](const Error& error) {
      return UnsupportedError(
          fmt::format("get_executor: {} replicas have a part of the batch's rows each, which "
                      "the tree cannot be computed from: {}",
                      options.replica->replicas, error.what()));
    };
    try {
      return freeze(wanted, updates, sizes, options.inference);
    } catch (const ShapeError& error) {
      throw fail(error);
    } catch (const IndexError& error) {
      throw fail(error);
    }
  };
  Graph graph = frozen(rows);
  const auto gradients = graph.results.begin() + static_cast<std::ptrdiff_t>(results.size());
  const std::vector<ValueRef> values(gradients, graph.results.end());
  graph.results.erase(gradients, graph.results.end());
  std::vector<size_t> exchanged;
  if (options.replica) {
    const Graph other = frozen(options.replica->other);
    replication = roles_of_results(graph, other, *options.replica, exchanged);
  }
  bool scattered = false;
  if (const auto* owners = options.replica ? options.replica->owners.get() : nullptr) {
    // What is sent early is sent whole: few owners have a part in each bucket, and would get all of it.
    int64_t bytes = 0;
    for (const ValueRef& value : values) bytes += bytes_of(graph.spec(value));
    const int64_t early = options.replica->bucket_bytes;
    scattered = (early == 0 || bytes <= early) && owners_read_their_own(graph, parameters, values, *owners);
  }
  gather_gradients(graph, parameters, values, exchanged, scattered);
  if (options.replica && options.replica->gathers) {
    std::vector<bool> keep;
    for (const GraphNode& n : graph.nodes) keep.push_back(!n.op->has_side_effects());
    graph.remove_unless(keep);
  }
  if (options.replica && options.replica->owners)
    own_updates(graph, *options.replica->owners, options.replica->replica);
  return graph;
}

/// Where the plan's replicas exchange, once no pass moves nodes any more.
void note_exchanges(const PlanData& plan, Replication& replication) {
  for (const BucketPlan& bucket : plan.memory.buckets)
    replication.buckets.push_back({bucket.node, plan.memory.buffers[bucket.buffer].bytes,
                                   as_bucket(*plan.graph.nodes[bucket.node].op)->scattered()});
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (is_arrival(*plan.graph.nodes[i].op)) replication.arrival = i;
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : passes) names.emplace_back(pass.name);
  names.emplace_back("recompute");
  names.emplace_back("in_place");
  return names;
}

std::shared_ptr<const PlanData> compile(const std::vector<Variable>& results,
                                        const std::vector<Variable>& updates, const FeedRows& rows,
                                        const CompileOptions& options) {
  const std::vector<std::string> known = pass_names();
  for (const std::string& name : options.without)
    if (!named(known, name)) throw Error(fmt::format("get_executor: there is no pass '{}'", name));

  auto plan = std::make_shared<PlanData>();
  Graph& graph = plan->graph;
  graph = freeze_with_bucket(results, updates, rows, options, plan->replication);
  graph.device = options.device;
  keep_old_values(graph);
  verify(graph, "freeze");
  const auto run = [&](const char* name, const auto& pass) {
    if (named(options.without, name)) return;
    PassReport report{.name = name, .nodes_before = static_cast<int64_t>(graph.nodes.size())};
    if (options.dump) report.before = graph.str();
    const auto begin = std::chrono::steady_clock::now();
    report.changed = pass(graph);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.nodes_after = static_cast<int64_t>(graph.nodes.size());
    if (options.dump) report.after = graph.str();
    plan->passes.push_back(std::move(report));
    verify(graph, name);
  };
  for (const Pass& pass : passes) run(pass.name, [&](Graph& g) { return pass.function(g, options); });
  if (options.replica && options.replica->owners && !options.replica->gathers)
    gather_parameters(graph, options.replica->owners);
  keep_old_values(graph);
  verify(graph, "keep_old_values");
  const bool in_place = !named(options.without, "in_place");
  const int64_t budget = options.memory_budget;
  if (budget > 0) run("recompute", [&](Graph& g) { return recompute(g, budget, in_place); });
  gather_last(graph);
  plan->memory = plan_memory(graph, in_place);
  if (plan->replication) note_exchanges(*plan, *plan->replication);
  if (options.replica) plan->owners = options.replica->owners, plan->replica = options.replica->replica;
  if (budget > 0 && plan->memory.arena_bytes > budget)
    throw OutOfMemory(
        fmt::format("get_executor: the memory budget is {} bytes, and the least that was reached is {}",
                    budget, plan->memory.arena_bytes));
  return plan;
}

}  // namespace espalier
