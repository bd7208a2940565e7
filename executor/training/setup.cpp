#include "espalier/executor/training/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <set>
#include <string_view>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/tree.h"
#include "espalier/executor/communicators/caller.h"
#include "espalier/executor/runtime/parameter_arena.h"
#include "espalier/executor/training/placeholder_names.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/update.h"

namespace espalier {

namespace {

constexpr std::string_view several_feeds_advice =
    "; one Distributor shows several datasets in step, each by the number of its rows: zip({a, batch(b, 3)})";

void choose_mode(const Variable& root, ExecutorOptions& options) {
  if (!root.defined()) throw Error("get_executor: the Variable is undefined");
  const GradientRecord* record = root.node()->record.get();
  const bool updates = options.optimizer || (record && !record->updates.empty());
  if (!options.mode) options.mode = updates ? Mode::training : Mode::inference;
}

void check_options(const ExecutorOptions& options) {
  const bool training = *options.mode == Mode::training;
  if (options.replicas.bucket_bytes < 0)
    throw Error(
        fmt::format("get_executor: gradients cannot be sent by {} bytes", options.replicas.bucket_bytes));
  if (options.accumulate < 1)
    throw Error(fmt::format("get_executor: a batch cannot be cut into {} micro-batches", options.accumulate));
  if (options.accumulate > 1 && !training)
    throw Error("get_executor: gradients are accumulated over micro-batches in training only");
  if (options.replicas.shard_states && !training)
    throw Error("get_executor: states are shared out in training only");
  if (options.plan_cache < 1)
    throw Error(fmt::format("get_executor: {} plans cannot be kept", options.plan_cache));
  for (const int64_t rows : options.buckets)
    if (rows < 1) throw Error(fmt::format("get_executor: a bucket cannot hold {} rows", rows));
  if (!options.buckets.empty() && training)
    throw Error("get_executor: .buckets adds rows to the batches of run(), in inference only");
  if (options.memory_budget < 0)
    throw Error(fmt::format("get_executor: a memory budget cannot be {} bytes", options.memory_budget));
  if (options.validation && !training) throw Error("get_executor: validation goes with training only");
  if (options.optimizer && !training) throw Error("get_executor: an optimizer goes with training only");
}

/// Adds what is computed beside the tree's value.
void find_outputs(Setup& setup) {
  std::set<std::string_view> names;
  for (const auto& [name, output] : setup.options.outputs) {
    if (name.empty()) throw Error("get_executor: an output has no name");
    if (!names.insert(name).second)
      throw Error(fmt::format("get_executor: two outputs are named '{}'", name));
    setup.first_outputs.push_back(setup.tree.outputs.size());
    const std::vector<Variable>& variables = output.variables();
    EpochFigure figure{name, 0, output.finish(), internal::alignment_of(output.finish())};
    for (const Variable& variable : variables) {
      if (!variable.defined())
        throw Error(fmt::format("get_executor: the output '{}' is an undefined Variable", name));
      const bool is_recorded = output.finish() || variable.rank() == 0;
      if (is_recorded) setup.tree.recorded.push_back(setup.tree.outputs.size());
      setup.tree.outputs.push_back(variable);
      if (is_recorded) figure.numbers += static_cast<size_t>(variable.shape().elements());
    }
    if (figure.numbers > 0) setup.figures.push_back(std::move(figure));
  }
}

void take_built_step(Setup& setup, const BuiltStep& built) {
  setup.tree.updates = built.updates;
  setup.tree.gradients = built.gradients;
  setup.tree.succeeded = built.succeeded;
  setup.loss_scale = built.loss_scale;
}

/// Sets the updates of a step, and the gradients that they are made of if an optimizer was given.
void find_updates(Setup& setup) {
  BuildContext now = build_context();
  now.lazy = true;  // the plan computes; the tree only grows
  now.without_activations = true;
  const BuildScope scope(now);
  const Variable& root = setup.root;
  const ExecutorOptions& options = setup.options;
  const bool scales = options.precision == Precision::float16;
  const bool by_rows = options.accumulate == 1;
  if (options.optimizer) {
    if (scales) setup.loss_scale.emplace(root.device());
    const auto gradients = optim::trained_gradients(
        root, scales ? setup.loss_scale->gradients(root) : new_parameter_gradients(root), *options.optimizer,
        "get_executor");
    setup.tree.updates =
        scales ? setup.loss_scale->updates(gradients, *options.optimizer, setup.tree.succeeded, by_rows)
               : options.optimizer->build(gradients, {}, by_rows);
    setup.tree.gradients = gradients;
  } else if (scales) {
    throw Error(
        "get_executor: training in float16 scales the loss, which the updates in the tree do not; name the "
        "optimizer: get_executor({.optimizer = …, .precision = Precision::float16})");
  } else if (root.node()->record) {
    if (root.node()->record->updates.size() > 1)
      throw Error(
          "get_executor: the tree holds updates of several optimizers, or of different parameters, and a "
          "step has those of one: name it, .optimizer = …; optim::Groups has an optimizer for each group of "
          "parameters");
    for (const GradientRecord::Update& update : root.node()->record->updates) {
      if (!std::ranges::all_of(update.parameters, [](const Node* p) { return is_trained(*p); }))
        throw Error(
            "get_executor: parameters have been frozen since the update in the tree was written; name the "
            "optimizer");
      for (const Edge& assignment : update.assignments) setup.tree.updates.push_back(assignment.variable());
    }
  }
  if (setup.tree.updates.empty() && !assigns_states(root, options.outputs))
    throw Error(
        "get_executor: training needs an optimizer, or states that the tree assigns: get_executor({.mode = "
        "Mode::training, .optimizer = …})");
}

/// Sets the feeds, the leaves and the collective of a tree.
void find_inputs(Setup& setup) {
  std::vector<Variable> roots = setup.tree.updates;
  roots.push_back(setup.root);
  roots.insert(roots.end(), setup.tree.outputs.begin(), setup.tree.outputs.end());
  std::vector<std::shared_ptr<Feed>> feeds;
  const std::vector<Node*> tree = nodes_below(TreeWalk(roots));
  for (Node* node : tree) {
    if (node->is_leaf() && !is_constant(node->op())) setup.leaves.emplace_back(node);
    if (const auto* feed = node->op().feed())
      if (std::find(feeds.begin(), feeds.end(), *feed) == feeds.end()) feeds.push_back(*feed);
    if (node->op().effect() == Effect::communicates) setup.collective = node;
    if (setup.training() && orders_assignment(node->op())) setup.written.insert(node->inputs[1].node());
  }
  for (const Variable& update : setup.tree.updates) setup.written.insert(update.node()->inputs[0].node());
  setup.feeds = TreeFeeds(std::move(feeds));
  check_names(tree);
  check_open_sizes(tree, "get_executor");
  if (!setup.leaves.empty()) setup.home = ParameterArena::device_of(setup.leaves[0]);
}

void check_validation(const Setup& setup) {
  const auto& validation = setup.options.validation;
  if (!validation) return;
  const Feed* fed = nullptr;
  int feeds = 0;
  for (const auto& feed : setup.feeds.all())
    if (!feed->is_placeholder()) fed = feed.get(), ++feeds;
  if (feeds != 1)
    throw DataError(fmt::format("get_executor: validation needs a tree with one Distributor, this has {}{}",
                                feeds, feeds > 1 ? several_feeds_advice : ""));
  const auto ours = fed->specs(), theirs = validation->feed()->specs();
  bool fit = ours.size() == theirs.size();
  for (size_t i = 0; fit && i < ours.size(); ++i) {
    Shape a = ours[i].shape, b = theirs[i].shape;
    a.dims()[0] = b.dims()[0] = 0;
    fit = a == b && ours[i].dtype == theirs[i].dtype;
  }
  if (fit) return;
  const auto list = [](const std::vector<Spec>& specs) {
    std::string text;
    for (const Spec& spec : specs) text += fmt::format(" {} {}", name(spec.dtype), spec.shape.str());
    return text;
  };
  throw DataError(fmt::format("get_executor: the validation feed shows{}, but the tree is fed{}",
                              list(theirs), list(ours)));
}

/// The gradients of the parameters that the updates in a tree change, if it has updates.
std::vector<std::pair<Variable, Variable>> updated_gradients(const Variable& root) {
  const GradientRecord* record = root.node()->record.get();
  if (!record || record->updates.empty()) return {};
  const auto& updated = record->updates.front().parameters;
  auto gradients = parameter_gradients(root);
  std::erase_if(gradients, [&](const auto& pair) {
    return std::ranges::find(updated, pair.first.node()) == updated.end();
  });
  return gradients;
}

/// Shards of a batch have a sum of real numbers for a loss, and in training they exchange gradients.
void build_shard_results(Setup& setup) {
  const Variable& root = setup.root;
  {
    BuildContext now = build_context();
    now.lazy = now.without_activations = true;
    if (!now.where) now.where = &root.node()->where;
    const BuildScope scope(now);
    const Variable real = is_real(root.dtype()) ? root : cast(root, float64);
    if (root.rank() > 0 || !is_real(root.dtype())) setup.tree.loss = sum(real);
    if (!is_real(root.dtype())) setup.tree.value_in_reals = real;
  }
  if (!setup.training()) return;
  if (setup.tree.gradients.empty()) setup.tree.gradients = updated_gradients(root);
  if (setup.tree.gradients.empty())
    throw UnsupportedError(
        "get_executor: replicas and micro-batches meet in the gradients of parameters, and the "
        "tree has none; name one device, and in a job of several processes say get_executor({.replicas = "
        "{.distributed = false}})");
}

/// Where a batch has other rows than the shard, and how the plan of a shard differs from one for all rows.
ShardOptions shard_options(const Setup& setup, const BatchSignature& batch, BatchShard shard,
                           bool inference) {
  const int64_t batch_rows = setup.feeds.batch_rows(batch);
  ShardOptions how{.shard = shard, .batch_rows = batch_rows, .other_feeds = setup.feeds.of_each(batch)};
  // Replicas send buckets one by one only if all have as many rows: plans of different sizes may complete
  // their gradients in different orders.
  if (shard.micro_batches == 1 && setup.target.overlaps && batch_rows % shard.replicas == 0)
    how.bucket_bytes = setup.options.replicas.bucket_bytes;
  how.local_statistics = setup.options.replicas.local_statistics;
  if (!inference) how.owners = setup.owners;
  how.other_rows = shard.rows(batch_rows) == batch_rows ? 2 * batch_rows : batch_rows;
  for (size_t f = 0; f < setup.feeds.size(); ++f)
    if (setup.feeds.shows_rows(f, batch)) how.other_feeds.at(&setup.feeds[f]).rows = how.other_rows;
  return how;
}

/// A step makes plans, too.
std::string_view caller_name() {
  const std::string_view name = caller_or().called();
  return name.empty() ? "get_executor" : name;
}

/// The sizes of what a shard reads.
FeedSizes sizes_of_shard(const TreeFeeds& feeds, const BatchSignature& batch, BatchShard shard) {
  FeedSizes sizes = feeds.of_each(batch);
  const int64_t whole = feeds.batch_rows(batch);
  for (size_t f = 0; f < feeds.size(); ++f) {
    if (!feeds.shows_rows(f, batch)) continue;
    if (batch.rows[f] != whole && shard.pieces() > 1)
      throw UnsupportedError(fmt::format(
          "{}: replicas and micro-batches share out the rows of a batch, and the feeds show {} and {}{}",
          caller_name(), whole, batch.rows[f],
          feeds.has_placeholders_only()
              ? fmt::format(
                    ": where nothing but placeholders feeds a tree, each that is no scalar shows the rows "
                    "of the batch, also '{}'; a value that is the same for all rows is a state(), which "
                    "set_value() writes",
                    feeds[f].name())
              : std::string(several_feeds_advice)));
    sizes.at(&feeds[f]).rows = shard.rows(batch.rows[f]);
  }
  return sizes;
}

/// Adds to a refusal which placeholders were taken for rows, as far as that is only known by their size.
UnsupportedError with_assumptions(const UnsupportedError& error, const TreeFeeds& feeds,
                                  const BatchSignature& batch) {
  std::string assumed;
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds[f].is_placeholder() && !feeds.has_placeholders_only() && feeds.shows_rows(f, batch))
      assumed += fmt::format("{} '{}'", assumed.empty() ? "" : ",", feeds[f].name());
  if (assumed.empty()) return error;
  return UnsupportedError(fmt::format(
      "{}. By its first size, {}, what was given for{} was taken for rows of the batch; a value that is the "
      "same for all rows has another first size there (unsqueeze() an axis of 1), or is a state(), written "
      "by "
      "set_value()",
      error.what(), feeds.batch_rows(batch), assumed));
}

/// Which placeholders have other rows than the batch, as the end of a message.
std::string other_rows(const TreeFeeds& feeds, const BatchSignature& batch) {
  const int64_t rows = feeds.batch_rows(batch);
  std::string text;
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds[f].is_placeholder() && feeds[f].specs()[0].shape.rank() > 0 && batch.rows[f] != rows)
      text += fmt::format("; the placeholder '{}' has {} rows here, and the batch has {}", feeds[f].name(),
                          batch.rows[f], rows);
  return text;
}

}  // namespace

bool assigns_states(const Variable& root, const std::vector<std::pair<std::string, PlanOutput>>& outputs) {
  std::vector<Variable> roots{root};
  for (const auto& [name, output] : outputs)
    roots.insert(roots.end(), output.variables().begin(), output.variables().end());
  return std::ranges::any_of(nodes_below(TreeWalk(roots)),
                             [](const Node* node) { return orders_assignment(node->op()); });
}

Setup::Setup(const Variable& tree_root, const ExecutorOptions& given, bool gather, const BuiltStep* built)
    : root(tree_root), options(given), gather_gradients(gather), tree{tree_root} {
  choose_mode(root, options);
  check_options(options);
  find_outputs(*this);
  if (training()) built ? take_built_step(*this, *built) : find_updates(*this);
  find_inputs(*this);
  if (!options.buckets.empty() && feeds.size() > 0 && !feeds.has_placeholders_only())
    throw Error("get_executor: .buckets adds rows to the batches of run(), and a Distributor feeds the tree");
  check_validation(*this);
}

BuiltStep Setup::built_step() const {
  BuiltStep built{tree.updates, tree.gradients, tree.succeeded, loss_scale};
  if (training() && built.gradients.empty()) built.gradients = updated_gradients(root);
  return built;
}

void Setup::prepare_for(const Target& devices) {
  target = devices;
  if (!options.buckets.empty() && target.replicas > 1)
    throw UnsupportedError(fmt::format(
        "get_executor: .buckets is for one device, and there are {} replicas; in a job of several "
        "processes say get_executor({{.replicas = {{.distributed = false}}}})",
        target.replicas));
  if (!sharded()) return;
  constexpr int64_t most = 1 << 20;
  if (options.accumulate > most || int64_t{target.replicas} * options.accumulate > INT_MAX)
    throw Error(
        fmt::format("get_executor: a batch cannot be cut into {} micro-batches on each of {} replicas",
                    options.accumulate, target.replicas));
  if (collective)
    throw UnsupportedError(fmt::format(
        "get_executor: the tree exchanges values itself, by '{}' ({}), and so cannot be replicated; name one "
        "device, and in a job of several processes say get_executor({{.replicas = {{.distributed = "
        "false}}}})",
        collective->op().name(), line_of(collective->where)));
  build_shard_results(*this);
  if (!options.replicas.shard_states || target.replicas == 1) return;
  std::vector<Variable> roots = tree.outputs;
  roots.push_back(tree.value);
  for (const Variable& more : {tree.loss, tree.value_in_reals})
    if (more.defined()) roots.push_back(more);
  StateOwners shared = share_out_states(tree.updates, roots, arranged_leaves(), target.replicas);
  if (!shared.parameters.empty()) owners = std::make_shared<StateOwners>(std::move(shared));
}

std::vector<Variable> Setup::arranged_leaves() const {
  std::vector<Variable> arranged = leaves;
  std::stable_sort(arranged.begin(), arranged.end(), [](const Variable& a, const Variable& b) {
    const Op &x = a.node()->op(), &y = b.node()->op();
    if (is_parameter(x) || is_parameter(y)) return is_parameter(x) && !is_parameter(y);
    return x.name() < y.name();
  });
  return arranged;
}

std::shared_ptr<const PlanData> compile_step(const Setup& setup, const BatchSignature& batch,
                                             BatchShard shard, bool inference) {
  const FeedSizes sizes = sizes_of_shard(setup.feeds, batch, shard);
  StepTree tree = setup.tree;
  if (inference) tree.updates.clear();
  if (!setup.gathers_gradients(inference)) tree.gradients.clear();
  CompileOptions how{.inference = inference,
                     .device = setup.target.device,
                     .without = setup.options.without,
                     .dump = setup.options.dump,
                     .memory_budget = setup.options.memory_budget,
                     .precision = setup.options.precision,
                     .find_nan = !setup.options.find_nan ? NanSearch::off
                                 : setup.loss_scale      ? NanSearch::results
                                                         : NanSearch::exchanged};
  if (setup.sharded()) how.shard = shard_options(setup, batch, shard, inference);
  try {
    const auto plan = compile(tree, sizes, how);
    if (plan->numbers() != 1 + static_cast<int64_t>(count_numbers(setup.figures)))
      throw UnsupportedError(
          "get_executor: a Metric has a value with a row for each of the batch; its values are means over "
          "the "
          "rows");
    return plan;
  } catch (ShapeError& error) {
    error.add(other_rows(setup.feeds, batch));
    throw;
  } catch (const UnsupportedError& error) {
    if (!setup.sharded()) throw;
    throw with_assumptions(error, setup.feeds, batch);
  }
}

}  // namespace espalier
