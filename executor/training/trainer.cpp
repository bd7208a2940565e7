#include "espalier/executor/training/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/stopwatch.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/report/report.h"
#include "espalier/executor/training/epoch_loop.h"
#include "espalier/executor/training/resume.h"

namespace espalier {

namespace {

/// Releases what eager gradients would read, which plans do not need, before the step is built.
Setup make_setup(const Variable& root, const ExecutorOptions& options, bool gather_gradients) {
  check_devices(options.devices);
  constexpr int64_t large = int64_t{1} << 24;
  if (root.defined() && release_values(*root.node()) >= large) release_cached_memory();
  return Setup(root, options, gather_gradients);
}

/// The devices that the options name, or that of the tree, with memory for its leaves.
std::unique_ptr<Replicas> make_devices(Setup& setup) {
  const ExecutorOptions& options = setup.options;
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.push_back(setup.home);
  const bool alone = !options.replicas.distributed || distributed::size() == 1;
  const DeviceType type = devices[0].type;
  // Threads of one process compute and communicate on the same cores, so these cannot overlap.
  setup.prepare_for({.device = type,
                     .replicas = static_cast<int>(devices.size()) * (alone ? 1 : distributed::size()),
                     .overlaps = !alone || type != DeviceType::cpu});
  auto replicas = std::make_unique<Replicas>(devices, options.launch, alone ? nullptr : distributed::world());
  replicas->add_leaves(setup.arranged_leaves(), setup.owners.get(), setup.gathers_gradients(false));
  replicas->first().update_leaves();
  return replicas;
}

/// Refuses what a callback asks of a trainer that is in the middle of a step.
class Busy {
 public:
  Busy(bool& busy, const char* what) : busy_(busy) {
    if (busy)
      throw Error(fmt::format("{}: the executor is in the middle of a step, which called this", what));
    busy_ = true;
  }
  ~Busy() { busy_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  bool& busy_;
};

}  // namespace

Trainer::Trainer(const Variable& root, const ExecutorOptions& options, bool gather_gradients)
    : setup_(make_setup(root, options, gather_gradients)),
      devices_(make_devices(setup_)),
      job_(setup_, *devices_),
      plans_(setup_, *devices_),
      run_(setup_.feeds),
      value_(setup_, job_) {
  devices_->update_leaves();
  // The plans of an epoch: for whole batches, and for a short last one.
  plans_.at_step(0);
  const int64_t steps = setup_.feeds.has_placeholders() ? 0 : setup_.feeds.steps();
  if (steps > 0) plans_.at_step(steps - 1);
}

History Trainer::execute(const ExecuteOptions& options) {
  if (options.epochs < 0) throw Error(fmt::format("execute: {} is not a number of epochs", options.epochs));
  if (options.checkpoint_every < 0)
    throw Error(fmt::format("execute: a checkpoint cannot come every {} steps", options.checkpoint_every));
  if (options.checkpoint_every > 0 && options.checkpoint.empty())
    throw Error(fmt::format("execute: a checkpoint every {} steps needs a folder: .checkpoint",
                            options.checkpoint_every));
  setup_.feeds.need_data("execute");
  const Busy busy(busy_, "execute");
  return job_.guarded([&] { return EpochLoop::run(*this, options); });
}

StepInfo Trainer::step() {
  setup_.feeds.need_data("step");
  const Busy busy(busy_, "step");
  devices_->begin_after_eager();
  devices_->update_leaves();
  run_.follow_feeds();
  if (!step_readers_) step_readers_.emplace(make_readers());
  if (!step_readers_->is_before(run_.step())) step_readers_->start(run_.step());
  if (run_.step() >= setup_.feeds.steps()) {
    devices_->finish_before_eager();
    job_.gather_states();
    run_.finish_epoch();
    throw EndOfData();
  }
  const Stopwatch watch;
  StepInfo info{.epoch = setup_.feeds.size() ? setup_.feeds[0].epoch() : 0,
                .step = run_.step(),
                .steps = setup_.feeds.steps()};
  (void)run_.begin_epoch();
  train_step(*step_readers_, info);
  devices_->finish_before_eager();
  info.loss = settle_losses();
  info.seconds = watch.seconds();
  run_.set_seconds(run_.state().record.seconds + info.seconds);
  tell(Event::step_finish, info);
  profiler_.write_if_done();
  return info;
}

void Trainer::train_step(BatchReaders& readers, StepInfo& info) {
  devices_->update_leaves();  // a callback may have set values
  BatchPlans& plans = plans_.at_step(run_.step());
  profiler_.begin_step();
  run_plans(plans, readers);
  devices_->first().note_loss(*plans.last().runtime);
  run_.add_step(plans.samples());
  info.samples = plans.samples();
  profiler_.end_step(plans.last().data);
}

void Trainer::run_plans(BatchPlans& plans, BatchSource& batch) {
  plans.run(batch, generator().next_stream, &profiler_);
  generator().next_stream += static_cast<uint64_t>(plans.random_nodes());
  if (!plans.last().runtime->assigned().empty()) job_.note_update();
  value_.set(plans);
}

Tensor Trainer::run(const Feeds& given) {
  GivenBatch batch(setup_.feeds, given);
  devices_->begin_after_eager();
  devices_->update_leaves();
  BatchPlans& plans = plans_.find(batch.rows());
  check_has_value(plans);
  profiler_.begin_step();
  run_plans(plans, batch);
  devices_->finish_before_eager();
  Tensor result = value_.get();
  profiler_.end_step(plans.last().data);
  profiler_.write_if_done();
  return result;
}

BatchReaders Trainer::make_readers() {
  return BatchReaders(setup_.feeds, setup_.feeds, feed_shards_, *devices_, setup_.micro_batches(false));
}

double Trainer::settle_losses() {
  if (run_.has_all_losses()) return 0;
  losses_.clear();
  try {
    devices_->take_losses(losses_);
  } catch (...) {
    forget_losses();
    throw;
  }
  run_.add_losses(losses_);
  return losses_.back();
}

void Trainer::forget_losses() {
  run_.forget_losses();
  devices_->forget_losses();
}

bool Trainer::listens(Event event) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& l) { return l.first == event; });
}

void Trainer::tell(Event event, const StepInfo& info) {
  if (!listens(event)) return;
  devices_->finish_before_eager();
  const size_t count = listeners_.size();  // a listener may add others
  for (size_t i = 0; i < count; ++i)
    if (listeners_[i].first == event) job_.guarded([&] { listeners_[i].second(info); });
  devices_->begin_after_eager();
}

void Trainer::checkpoint(const std::filesystem::path& folder) {
  job_.guarded([&] {
    settle_losses();
    devices_->finish_before_eager();
    job_.gather_states();
    devices_->confirm();
    if (job_.is_first()) write_checkpoint(folder, take_checkpoint(setup_, run_.state_now()));
  });
  job_.wait_for_checkpoint();
}

void Trainer::resume(const std::filesystem::path& folder) {
  if (busy_) throw Error("resume: the executor is in the middle of a step, which called this");
  CheckpointFile file;
  std::exception_ptr error;
  try {
    file = read_checkpoint(folder);
    check_fit(file, setup_);
  } catch (...) {  // also bad_alloc
    error = std::current_exception();
  }
  job_.agree_on_checkpoint(file, error);
  if (error) std::rethrow_exception(error);
  restore(file.checkpoint, setup_);
  run_.resume(std::move(file.checkpoint.run));
  step_readers_.reset();
  value_.clear();
  if (gemm_choices().set(file.checkpoint.products)) plans_.clear();  // they keep the library of each product
}

Plan Trainer::plan() { return Plan(plans_.at_step(0).last().data); }

void Trainer::report(const std::filesystem::path& html) {
  auto plan = plans_.at_step(0).last().data;
  if (!profiler_.times(*plan) && profiler_.busiest()) plan = profiler_.busiest();
  write_report(html, *plan, profiler_.times(*plan));
}

}  // namespace espalier
