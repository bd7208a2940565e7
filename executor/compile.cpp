// From a tree to a plan. Read this first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
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
};

bool named(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// The tree as a graph, in which gradients meet in a bucket if that is asked for.
Graph freeze_with_bucket(const std::vector<Variable>& results, const std::vector<Variable>& updates,
                         const FeedRows& rows, const CompileOptions& options) {
  std::vector<Variable> parameters, wanted = results;
  for (const auto& [parameter, gradient] : options.gradient_bucket) {
    parameters.push_back(parameter);
    wanted.push_back(gradient);
  }
  Graph graph = freeze(wanted, updates, rows, options.inference);
  const auto gradients = graph.results.begin() + static_cast<std::ptrdiff_t>(results.size());
  const std::vector<ValueRef> values(gradients, graph.results.end());
  graph.results.erase(gradients, graph.results.end());
  gather_gradients(graph, parameters, values);
  return graph;
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
  graph = freeze_with_bucket(results, updates, rows, options);
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
  keep_old_values(graph);
  verify(graph, "keep_old_values");
  const bool in_place = !named(options.without, "in_place");
  const int64_t budget = options.memory_budget;
  if (budget > 0) run("recompute", [&](Graph& g) { return recompute(g, budget, in_place); });
  plan->memory = plan_memory(graph, in_place);
  if (budget > 0 && plan->memory.arena_bytes > budget)
    throw OutOfMemory(
        fmt::format("get_executor: the memory budget is {} bytes, and the least that was reached is {}",
                    budget, plan->memory.arena_bytes));
  return plan;
}

}  // namespace espalier
