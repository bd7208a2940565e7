// From a tree and options to an executor.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/tree.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/training/executor_impl.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

/// What a tree is made of, as far as an executor must know.
struct Tree {
  std::vector<Variable> leaves;
  std::vector<std::shared_ptr<Feed>> feeds;
  const Node* collective = nullptr;  // one of them, if there are any
};

Tree look_at(const std::vector<Variable>& roots) {
  Tree tree;
  for (Node* node : nodes_below(TreeWalk(roots))) {
    if (node->is_leaf() && !is_constant(node->op())) tree.leaves.emplace_back(node);
    if (const auto* feed = node->op().feed())
      if (std::find(tree.feeds.begin(), tree.feeds.end(), *feed) == tree.feeds.end())
        tree.feeds.push_back(*feed);
    if (node->op().effect() == Effect::communicates) tree.collective = node;
  }
  return tree;
}

}  // namespace

Executor::Impl::Impl(const Variable& root, const ExecutorOptions& options)
    : root_(root), tree_{root}, options_(options) {
  choose_mode();
  check_options();
  // What eager gradients would read is not needed beside a plan; its memory is, from here on.
  constexpr int64_t large = int64_t{1} << 24;
  if (release_values(*root_.node()) >= large) release_cached_memory();
  if (training()) find_updates();
  std::vector<Variable> roots = tree_.updates;
  roots.push_back(root_);
  Tree tree = look_at(roots);
  feeds_ = std::move(tree.feeds);
  leaf_list_ = std::move(tree.leaves);
  if (tree.collective) check_alone(*tree.collective);
  choose_devices();
  add_leaves();
  check_validation();
  if (!replicas_->simulated()) {
    replicas_->first().update_leaves();
    if (world()) meet_processes();
    replicas_->update_leaves();
  }
  prepare_epoch();
  run_epochs_ = epochs_of_feeds();
}

/// A tree with collectives of its own knows its ranks; the executor must not shard its batch as well.
void Executor::Impl::check_alone(const Node& collective) const {
  const bool one_of_many = options_.distributed && distributed::size() > 1;
  if (options_.devices.size() > 1 || options_.accumulate > 1 || one_of_many)
    throw UnsupportedError(fmt::format(
        "get_executor: the tree exchanges values itself, by '{}' ({}), and so cannot be replicated; name one "
        "device, and in a job of several processes say get_executor({{.distributed = false}})",
        collective.op().name(), line_of(collective.where)));
}

/// Gives each replica its leaves: parameters side by side, then the states of each kind.
void Executor::Impl::add_leaves() {
  std::vector<Variable> arranged = leaf_list_;
  std::stable_sort(arranged.begin(), arranged.end(), [](const Variable& a, const Variable& b) {
    const Op &x = a.node()->op(), &y = b.node()->op();
    if (is_parameter(x) || is_parameter(y)) return is_parameter(x) && !is_parameter(y);
    return x.name() < y.name();
  });
  std::vector<Variable> roots{tree_.value};
  for (const Variable& root : {tree_.loss, tree_.value_in_reals})
    if (root.defined()) roots.push_back(root);
  if (options_.shard_states && replicas_->all() > 1)
    owners_ =
        std::make_shared<StateOwners>(share_out_states(tree_.updates, roots, arranged, replicas_->all()));
  using Keeping = ParameterArena::Keeping;
  const int here = static_cast<int>(replicas_->size());
  using Order = ParameterArena::Order;
  const bool buckets = training() && (options_.gradient_bucket || shares());
  for (int i = 0; i < here; ++i)
    (*replicas_)[static_cast<size_t>(i)].leaves.arrange(owners_   ? Order::needed
                                                        : buckets ? Order::preferred
                                                                  : Order::any);
  for (int i = 0; i < here; ++i)
    for (const Variable& leaf : arranged) {
      Keeping keeping = Keeping::shared;
      if (const int owner = owners_ ? owners_->of(leaf.node()) : -1;
          owner >= 0 && !is_parameter(leaf.node()->op())) {
        const int first = replicas_->shard(0).replica;
        const bool in_here = owner >= first && owner < first + here;
        keeping = owner == first + i ? Keeping::alone : !in_here && i == 0 ? Keeping::away : Keeping::nowhere;
      }
      (*replicas_)[static_cast<size_t>(i)].leaves.add(leaf, keeping);
    }
}

void Executor::Impl::choose_mode() {
  if (!root_.defined()) throw Error("get_executor: the Variable is undefined");
  const GradientRecord* record = root_.node()->record.get();
  const bool updates = options_.optimizer || (record && !record->updates.empty());
  if (!options_.mode) options_.mode = updates ? Mode::training : Mode::inference;
}

/// The tree is where its first leaf is; it runs there, or where it was asked to.
void Executor::Impl::choose_devices() {
  if (!leaf_list_.empty()) home_ = ParameterArena::device_of(leaf_list_[0]);
  std::vector<Device> devices = options_.devices;
  if (devices.empty()) devices.push_back(home_);
  const bool one_of_many =
      options_.distributed && distributed::size() > 1 && devices[0].type != DeviceType::simulated;
  replicas_ =
      std::make_unique<Replicas>(devices, options_.launch, one_of_many ? distributed::world() : nullptr);
  if (!shares()) return;
  {
    BuildContext now = build_context();
    now.lazy = now.without_activations = true;
    const BuildScope scope(now);
    const Variable real = is_real(root_.dtype()) ? root_ : cast(root_, float64);
    if (root_.rank() > 0 || !is_real(root_.dtype())) tree_.loss = sum(real);
    if (!is_real(root_.dtype())) tree_.value_in_reals = real;
  }
  if (!training()) return;
  if (!options_.optimizer) tree_.gradients = parameter_gradients(root_);
  if (tree_.gradients.empty())
    throw UnsupportedError(
        "get_executor: replicas and parts of a batch meet in the gradients of parameters, and the "
        "tree has none");
}

void Executor::Impl::check_options() const {
  for (const Device& device : options_.devices)
    if (device.type != DeviceType::simulated) (void)backend(device);
  if (options_.bucket_bytes < 0)
    throw Error(fmt::format("get_executor: gradients cannot be sent by {} bytes", options_.bucket_bytes));
  if (options_.accumulate < 1)
    throw Error(fmt::format("get_executor: a batch cannot be taken in {} parts", options_.accumulate));
  if (options_.accumulate > 1 && !training())
    throw Error("get_executor: parts of a batch are accumulated in training only");
  if (options_.shard_states && !training())
    throw Error("get_executor: states are shared out in training only");
  if (options_.memory_budget < 0)
    throw Error(fmt::format("get_executor: a memory budget cannot be {} bytes", options_.memory_budget));
  if (options_.validation && !training()) throw Error("get_executor: validation goes with training only");
  if (options_.optimizer && !training()) throw Error("get_executor: an optimizer goes with training only");
}

void Executor::Impl::find_updates() {
  BuildContext now = build_context();
  now.lazy = true;  // the plan computes; the tree only grows
  now.without_activations = true;
  const BuildScope scope(now);
  const bool scales = options_.precision == Precision::float16;
  if (options_.optimizer) {
    if (scales) loss_scale_.emplace(root_.device());
    const auto gradients = scales ? loss_scale_->gradients(root_) : new_parameter_gradients(root_);
    if (gradients.empty()) throw Error("get_executor: there is no parameter in the tree to train");
    tree_.updates =
        scales ? loss_scale_->updates(gradients, *options_.optimizer) : options_.optimizer->build(gradients);
    tree_.gradients = gradients;
  } else if (scales) {
    throw Error(
        "get_executor: training in float16 scales the loss, which the updates in the tree do not; name the "
        "optimizer: get_executor({.optimizer = …, .precision = Precision::float16})");
  } else if (root_.node()->record) {
    if (root_.node()->record->updates.size() > 1)
      throw Error("get_executor: the tree holds updates of several optimizers; name the one to use");
    for (const GradientRecord::Update& update : root_.node()->record->updates)
      for (const Edge& assignment : update.assignments) tree_.updates.push_back(assignment.variable());
  }
  if (tree_.updates.empty())
    throw Error(
        "get_executor: training needs an optimizer: get_executor({.mode = Mode::training, .optimizer = "
        "…})");
}

void Executor::Impl::check_validation() const {
  if (!options_.validation) return;
  if (feeds_.size() != 1 || feeds_[0]->is_placeholder())
    throw DataError(fmt::format(
        "get_executor: validation needs a tree with one Distributor, this has {} feeds", feeds_.size()));
  const auto ours = feeds_[0]->specs(), theirs = options_.validation->feed()->specs();
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

Executor Variable::get_executor(const ExecutorOptions& options, Where where) const {
  return located(where, [&] { return Executor(std::make_shared<Executor::Impl>(*this, options)); });
}

Executor Variable::get_executor() const { return get_executor({}, need().where); }

}  // namespace espalier
