// From a tree to a plan. Read this first: the table of stages is the whole pipeline, in order.
#include "espalier/executor/compile.h"

#include "espalier/core/stopwatch.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// What the stages work on.
struct Work {
  const StepTree& tree;
  const FeedSizes& rows;
  const CompileOptions& options;
  PlanData& plan;
  Graph& graph = plan.graph;
  const ShardOptions* shard = options.shard ? &*options.shard : nullptr;
  bool verified = false;  ///< since it was changed; the whole table is checked at its end
};

bool freeze_tree(Work& w) {
  static_cast<StepGraph&>(w.plan) = freeze_shard(w.tree, w.rows, w.options.inference, w.shard);
  w.graph.device = w.options.device;
  return true;
}
bool cut_into_shards(Work& w) {
  if (w.shard) w.plan.replication = shard(w.plan, w.tree, w.options.inference, *w.shard);
  return w.shard;
}
bool gather_all_gradients(Work& w) { return gather_gradients(w.plan); }
bool place_values(Work& w) {
  w.plan.memory = verified(plan_memory(w.graph, w.options.runs("in_place"), w.options.memory_budget));
  return false;
}
template <bool (*pass)(Graph&, const CompileOptions&)>
bool on_graph(Work& w) {
  return pass(w.graph, w.options);
}

enum class StageKind : uint8_t {
  unfinished,  ///< cannot be left out; the graph is valid again behind the next required stage
  required,    ///< cannot be left out
  pass,        ///< can be left out by its name, and is reported
};
struct Stage {
  const char* name;
  StageKind kind;
  bool (*run)(Work&);  ///< says whether it has changed the graph; null: a part of the stages around it
  int traits = 0;      ///< PassTrait
};

constexpr Stage stages[] = {
    {"freeze", StageKind::unfinished, freeze_tree},
    {"shard", StageKind::unfinished, cut_into_shards},
    {"gather_gradients", StageKind::unfinished, gather_all_gradients},
    {"accumulate_only", StageKind::unfinished, on_graph<drop_updates>},
    {"own_updates", StageKind::unfinished, on_graph<own_updates>},
    {"keep_old_values", StageKind::required, on_graph<keep_old_values>},
    {"dead_nodes", StageKind::pass, on_graph<dead_nodes>},
    {"simplify", StageKind::pass, on_graph<simplify>},
    {"fold_constants", StageKind::pass, on_graph<fold_constants>},
    {"common_subexpressions", StageKind::pass, on_graph<common_subexpressions>},
    {"simplify_again", StageKind::pass, on_graph<simplify>},
    {"fold_batch_norm", StageKind::pass, on_graph<fold_batch_norm>, joins_kernels},
    {"precision", StageKind::pass, on_graph<lower_precision>},
    {"channels_last", StageKind::pass, on_graph<channels_last>, has_no_code},
    {"join_slices", StageKind::pass, on_graph<join_slices>, joins_kernels},
    {"fuse_cross_entropy", StageKind::pass, on_graph<fuse_cross_entropy>, joins_kernels},
    {"fuse_sgd", StageKind::pass, on_graph<fuse_sgd>, joins_kernels | has_no_code},
    {"split_reductions", StageKind::pass, on_graph<split_reductions>, joins_kernels},
    {"fuse_pointwise", StageKind::pass, on_graph<fuse_pointwise>, joins_kernels},
    {"fuse_rows", StageKind::pass, on_graph<fuse_rows>, joins_kernels | has_no_code},
    {"group_updates", StageKind::pass, on_graph<group_updates>, joins_kernels | has_no_code},
    {"fuse_matmul", StageKind::pass, on_graph<fuse_matmul>, joins_kernels | has_no_code},
    {"fuse_convolution", StageKind::pass, on_graph<fuse_convolution>, joins_kernels},
    {"early_updates", StageKind::pass, on_graph<early_updates>},
    {"split_buckets", StageKind::pass, on_graph<split_buckets>},
    {"gather_parameters", StageKind::unfinished, on_graph<gather_parameters>},
    {"keep_old_values", StageKind::required, on_graph<keep_old_values>},
    {"checkpoint_scans", StageKind::pass, on_graph<checkpoint_scans>, needs_budget | has_no_code},
    {"recompute", StageKind::pass, on_graph<recompute>, needs_budget | has_no_code},
    {"in_place", StageKind::pass, nullptr},
    {"gather_last", StageKind::required, on_graph<gather_last>},
    {"memory", StageKind::required, place_values},
};

void run(const Stage& stage, Work& w) {
  const bool dump = w.options.dump && stage.kind == StageKind::pass;
  PassReport report{.name = stage.name, .nodes_before = static_cast<int64_t>(w.graph.nodes.size())};
  if (dump) report.before = w.graph.str();
  const Stopwatch watch;
  report.changed = stage.run(w);
  report.seconds = watch.seconds();
  report.nodes_after = static_cast<int64_t>(w.graph.nodes.size());
  if (dump) report.after = w.graph.str();
  if (stage.kind == StageKind::pass) w.plan.passes.push_back(std::move(report));
  w.verified &= !report.changed;
  if (stage.kind == StageKind::unfinished) return;
  if (!w.verified || &stage == std::end(stages) - 1) verify(w.graph, stage.name);
  w.verified = true;
}

std::vector<std::string> names_of(int traits) {
  std::vector<std::string> names;
  for (const Stage& stage : stages)
    if (stage.kind == StageKind::pass && (stage.traits & traits) == traits) names.emplace_back(stage.name);
  return names;
}

}  // namespace

std::vector<std::string> pass_names() { return names_of(0); }
std::vector<std::string> passes_without_code() { return names_of(has_no_code); }

std::shared_ptr<const PlanData> compile(const StepTree& tree, const FeedSizes& rows,
                                        const CompileOptions& options) {
  options.check_names(pass_names());
  auto plan = std::make_shared<PlanData>();
  plan->find_nan = options.find_nan;
  Work work{tree, rows, options, *plan};
  for (const Stage& stage : stages)
    if (stage.run && (stage.kind != StageKind::pass || options.runs(stage.name, stage.traits)))
      run(stage, work);
  plan->keeps_leaves = options.keeps_leaves(plan->graph);
  plan->graph.release_spare();
  return plan;
}

}  // namespace espalier
