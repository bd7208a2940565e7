#include "espalier/executor/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/data/prefetch.h"
#include "espalier/executor/progress.h"
#include "espalier/executor/runtime.h"

namespace espalier {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What a tree is made of, as far as an executor must know.
struct Tree {
  std::vector<Variable> leaves;
  std::vector<std::shared_ptr<Feed>> feeds;
};

Tree look_at(const std::vector<Variable>& roots) {
  Tree tree;
  NodeMap seen;
  std::vector<Node*> todo;
  for (const Variable& root : roots) todo.push_back(root.node());
  std::vector<Node*> leaves;
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    if (seen.find(node) != NodeMap::none) continue;
    seen.insert(node, 0);
    if (node->is_leaf() && !is_constant(node->op())) leaves.push_back(node);
    if (const auto* feed = node->op().feed())
      if (std::find(tree.feeds.begin(), tree.feeds.end(), *feed) == tree.feeds.end())
        tree.feeds.push_back(*feed);
    for (const Edge& input : node->inputs) todo.push_back(input.node());
  }
  std::sort(leaves.begin(), leaves.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  for (Node* leaf : leaves) tree.leaves.emplace_back(leaf);
  return tree;
}

double sum_of(const Tensor& value) {
  return visit(value.dtype(), [&]<class T>(TypeTag<T>) {
    double total = 0;
    const Tensor plain = value.contiguous_copy();
    for (const T x : plain.span<T>()) total += static_cast<double>(x);
    return total;
  });
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const Variable& root, const ExecutorOptions& options) : root_(root), options_(options) {
    choose_mode();
    check_options();
    if (training()) find_updates();
    std::vector<Variable> roots = updates_;
    roots.push_back(root_);
    Tree tree = look_at(roots);
    feeds_ = std::move(tree.feeds);
    std::sort(feeds_.begin(), feeds_.end());
    for (const Variable& leaf : tree.leaves) leaves_.add(leaf);
    check_validation();
    leaves_.bind();
    (void)plan_for(rows_at(0), false);
    if (trains_on_data() && steps() > 0) (void)plan_for(rows_at(steps() - 1), false);
  }

  History execute(const ExecuteOptions& options) {
    if (options.epochs < 0) throw Error(fmt::format("execute: {} is not a number of epochs", options.epochs));
    need_data("execute");
    leaves_.bind();
    const struct Unbind {  // what users take from leaves afterwards is theirs
      LeafArena& leaves;
      ~Unbind() { leaves.unbind(); }
    } at_end{leaves_};
    stopped_ = false;
    cursor_ = 0;
    History history;
    Progress progress(options.progress);
    Readers readers = start_readers();
    for (int64_t epoch = 0; epoch < options.epochs && !stopped_; ++epoch) {
      EpochRecord record;
      StepInfo info{.epoch = epoch, .steps = steps()};
      tell(Event::epoch_start, info);
      const auto begin = Clock::now();
      if (epoch > 0)
        for (size_t f = 0; f < feeds_.size(); ++f) readers[f]->start(feeds_[f]->epoch());
      double weighted = 0;
      for (info.step = 0; info.step < info.steps && !stopped_; ++info.step) {
        train_step(readers, info);
        info.seconds = since(begin);
        record.loss_sum += info.loss;
        record.samples += info.samples;
        weighted += info.loss * static_cast<double>(info.samples);
        tell(Event::step_finish, info);
        progress.step(epoch, options.epochs, info.step + 1, info.steps,
                      weighted / static_cast<double>(record.samples),
                      static_cast<double>(record.samples) / info.seconds);
      }
      record.seconds = since(begin);
      record.loss_mean = record.samples ? weighted / static_cast<double>(record.samples) : 0;
      for (const auto& feed : feeds_) feed->next_epoch();
      if (options_.validation) record.validation_loss = validate();
      history.epochs.push_back(record);
      progress.finish_epoch(epoch, options.epochs, record.loss_mean, record.validation_loss,
                            static_cast<double>(record.samples) / record.seconds);
      info.samples = record.samples;
      info.loss = record.loss_mean;
      info.validation_loss = record.validation_loss;
      info.seconds = record.seconds;
      tell(Event::epoch_finish, info);
    }
    return history;
  }

  StepInfo step() {
    need_data("step");
    leaves_.bind();
    int64_t epoch = 0;
    for (const auto& feed : feeds_) epoch += feed->epoch();
    if (step_readers_.empty() || step_epoch_ != epoch || cursor_ == 0) {
      step_readers_ = start_readers();
      step_epoch_ = epoch;
      cursor_ = 0;
    }
    if (cursor_ >= steps()) {
      for (const auto& feed : feeds_) feed->next_epoch();
      cursor_ = 0;
      throw EndOfData();
    }
    const auto begin = Clock::now();
    StepInfo info{.epoch = epoch, .step = cursor_, .steps = steps()};
    try {
      train_step(step_readers_, info);
    } catch (...) {  // the next call takes the same step
      for (size_t f = 0; f < feeds_.size(); ++f) step_readers_[f]->start(feeds_[f]->epoch(), cursor_);
      throw;
    }
    info.seconds = since(begin);
    ++cursor_;
    tell(Event::step_finish, info);
    return info;
  }

  Tensor run(const Feeds& given) {
    std::vector<const Tensor*> values(feeds_.size(), nullptr);
    for (const auto& [name, value] : given) {
      const auto feed = std::find_if(feeds_.begin(), feeds_.end(),
                                     [&](const auto& f) { return f->is_placeholder() && f->name() == name; });
      if (feed == feeds_.end()) throw DataError(fmt::format("run: the tree has no placeholder '{}'", name));
      values[static_cast<size_t>(feed - feeds_.begin())] = &value;
    }
    Rows rows;
    for (size_t f = 0; f < feeds_.size(); ++f) {
      if (!feeds_[f]->is_placeholder())
        throw DataError("run: the tree is fed by a Distributor; use execute() or step()");
      if (!values[f])
        throw DataError(fmt::format("run: placeholder '{}' was given no value", feeds_[f]->name()));
      rows.push_back(check_value(*feeds_[f], *values[f]));
    }
    leaves_.bind();
    Runtime& runtime = plan_for(rows, false);
    for (size_t f = 0; f < feeds_.size(); ++f) runtime.load(*feeds_[f], {values[f], 1});
    run_plan(runtime);
    return runtime.result(0).clone();
  }

  Tensor value() const {
    if (last_) return last_->result(0).clone();
    if (!last_value_.defined()) throw Error("value: the executor has not run a step yet");
    return last_value_;
  }

  void on(Event event, std::function<void(const StepInfo&)> f) {
    listeners_.emplace_back(event, std::move(f));
  }
  void stop() { stopped_ = true; }
  Plan plan() { return Plan(plans_.at({false, rows_at(0)}).data); }

 private:
  using Rows = std::vector<int64_t>;
  using Readers = std::vector<std::unique_ptr<data::Prefetcher>>;
  struct Bound {
    std::shared_ptr<const PlanData> data;
    std::unique_ptr<Runtime> runtime;
  };

  bool training() const { return *options_.mode == Mode::training; }
  bool trains_on_data() const {
    return std::none_of(feeds_.begin(), feeds_.end(),
                        [](const auto& feed) { return feed->is_placeholder(); });
  }

  void choose_mode() {
    if (!root_.defined()) throw Error("get_executor: the Variable is undefined");
    const Record* record = root_.node()->record.get();
    const bool updates = options_.optimizer || (record && !record->updates.empty());
    if (!options_.mode) options_.mode = updates ? Mode::training : Mode::inference;
  }

  void check_options() const {
    for (const Device& device : options_.devices) {
      (void)backend(device);
      if (device.type != DeviceType::cpu)
        throw UnsupportedError(fmt::format("get_executor: plans do not run on {}", device.str()));
    }
    if (options_.devices.size() > 1)
      throw UnsupportedError(
          fmt::format("get_executor: {} devices are asked for; this version runs a plan on one",
                      options_.devices.size()));
    if (options_.validation && !training()) throw Error("get_executor: validation goes with training only");
    if (options_.optimizer && !training()) throw Error("get_executor: an optimizer goes with training only");
  }

  void find_updates() {
    Building now = building();
    now.lazy = true;  // the plan computes; the tree only grows
    now.lean = true;
    const BuildingScope scope(now);
    if (options_.optimizer) {
      const auto gradients = new_parameter_gradients(root_);
      if (gradients.empty()) throw Error("get_executor: there is no parameter in the tree to train");
      updates_ = options_.optimizer->build(gradients);
    } else if (root_.node()->record) {
      if (root_.node()->record->updates.size() > 1)
        throw Error("get_executor: the tree holds updates of several optimizers; name the one to use");
      for (const Record::Update& update : root_.node()->record->updates)
        for (const Edge& assignment : update.assignments) updates_.push_back(assignment.variable());
    }
    if (updates_.empty())
      throw Error(
          "get_executor: training needs an optimizer: get_executor({.mode = Mode::training, .optimizer = "
          "…})");
  }

  void check_validation() const {
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

  void need_data(std::string_view what) const {
    for (const auto& feed : feeds_)
      if (feed->is_placeholder())
        throw DataError(
            fmt::format("{}: placeholder '{}' has no data of its own; use run()", what, feed->name()));
  }

  /// Steps in an epoch: as many as all feeds can show; one without any.
  int64_t steps() const {
    int64_t steps = feeds_.empty() ? 1 : INT64_MAX;
    for (const auto& feed : feeds_) steps = std::min(steps, feed->steps());
    return steps;
  }
  Rows rows_at(int64_t step) const {
    Rows rows;
    for (const auto& feed : feeds_) rows.push_back(feed->rows(step));
    return rows;
  }

  /// The plan for batches of these sizes, made when it is first needed.
  Runtime& plan_for(const Rows& rows, bool inference) {
    Bound& bound = plans_[{inference, rows}];
    if (bound.runtime) return *bound.runtime;
    try {
      FeedRows sizes;
      for (size_t f = 0; f < feeds_.size(); ++f) sizes[feeds_[f].get()] = rows[f];
      const bool calm = inference || !training();
      bound.data = compile({root_}, calm ? std::vector<Variable>() : updates_, sizes,
                           {.inference = calm, .without = options_.without, .dump = options_.dump});
      bound.runtime = std::make_unique<Runtime>(bound.data, leaves_, arena_);
    } catch (...) {
      plans_.erase({inference, rows});
      throw;
    }
    return *bound.runtime;
  }

  static int64_t check_value(const Feed& feed, const Tensor& value) {
    const Spec spec = feed.specs()[0];
    if (!value.defined() || value.dtype() != spec.dtype)
      throw TypeError(fmt::format("run: placeholder '{}' takes {}, not {}", feed.name(), name(spec.dtype),
                                  value.defined() ? name(value.dtype()) : "an undefined tensor"));
    Shape shape = value.shape();
    if (shape.rank() && shape.rank() == spec.shape.rank()) shape.dims()[0] = spec.shape.dims()[0];
    if (!(shape == spec.shape))
      throw ShapeError(fmt::format("run: placeholder '{}' of shape {} cannot take {}", feed.name(),
                                   spec.shape.str(), value.shape().str()));
    return shape.rank() ? value.shape()[0] : 1;
  }

  Readers start_readers() const {
    Readers readers;
    for (const auto& feed : feeds_) {
      readers.push_back(std::make_unique<data::Prefetcher>(feed));
      readers.back()->start(feed->epoch());
    }
    return readers;
  }

  void train_step(Readers& readers, StepInfo& info) {
    leaves_.bind();  // a callback may have set values
    Rows rows = rows_at(info.step);
    Runtime& runtime = plan_for(rows, false);
    for (size_t f = 0; f < feeds_.size(); ++f) runtime.load(*feeds_[f], readers[f]->next());
    run_plan(runtime);
    info.samples = rows.empty() ? 1 : *std::max_element(rows.begin(), rows.end());
    info.loss = sum_of(runtime.result(0));
  }

  void run_plan(Runtime& runtime) {
    Generator& random = generator();
    runtime.run(random.next_stream);
    random.next_stream += static_cast<uint64_t>(runtime.random_nodes());
    leaves_.mark_assigned(runtime.assigned());
    last_ = &runtime;
  }

  double validate() {
    const Feed& feed = *options_.validation->feed();
    leaves_.bind();
    if (last_) last_value_ = last_->result(0).clone();  // its memory is used again now
    last_ = nullptr;
    double weighted = 0;
    int64_t samples = 0;
    for (int64_t step = 0; step < feed.steps(); ++step) {
      const int64_t rows = feed.rows(step);
      Runtime& runtime = plan_for({rows}, true);
      runtime.load(*feeds_[0], feed.batch(feed.epoch(), step));
      runtime.run(0);
      weighted += sum_of(runtime.result(0)) * static_cast<double>(rows);
      samples += rows;
    }
    return weighted / static_cast<double>(samples);
  }

  void tell(Event event, const StepInfo& info) {
    const size_t count = listeners_.size();  // a callback may add others
    for (size_t i = 0; i < count; ++i) {
      if (listeners_[i].first != event) continue;
      const auto callback = listeners_[i].second;
      callback(info);
    }
  }

  Variable root_;
  ExecutorOptions options_;
  std::vector<Variable> updates_;
  std::vector<std::shared_ptr<Feed>> feeds_;
  LeafArena leaves_;
  Tensor arena_;
  std::map<std::pair<bool, Rows>, Bound> plans_;
  Runtime* last_ = nullptr;
  Tensor last_value_;
  std::vector<std::pair<Event, std::function<void(const StepInfo&)>>> listeners_;
  bool stopped_ = false;
  Readers step_readers_;
  int64_t cursor_ = 0, step_epoch_ = -1;
};

History Executor::execute(const ExecuteOptions& options, Where where) const {
  const auto impl = impl_;  // a callback may let go of this handle
  return located(where, [&] { return impl->execute(options); });
}
StepInfo Executor::step(Where where) const {
  const auto impl = impl_;  // a callback may let go of this handle
  return located(where, [&] { return impl->step(); });
}
Tensor Executor::run(const Feeds& feeds, Where where) const {
  const auto impl = impl_;  // a callback may let go of this handle
  return located(where, [&] { return impl->run(feeds); });
}
Tensor Executor::value() const { return impl_->value(); }
void Executor::on(Event event, std::function<void(const StepInfo&)> f, Where where) const {
  if (!f) located(where, [] { throw Error("on: there is no function to call"); });
  impl_->on(event, std::move(f));
}
void Executor::stop() const { impl_->stop(); }
Plan Executor::plan() const { return impl_->plan(); }

Executor Variable::get_executor(const ExecutorOptions& options, Where where) const {
  return located(where, [&] { return Executor(std::make_shared<Executor::Impl>(*this, options)); });
}

Executor Variable::get_executor() const { return get_executor({}, need().where); }

}  // namespace espalier
