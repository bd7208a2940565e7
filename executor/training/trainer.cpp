#include "espalier/executor/training/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/stopwatch.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/report/report.h"
#include "espalier/executor/training/epoch_loop.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/resume.h"
#include "espalier/executor/training/row_buckets.h"

namespace espalier {

namespace {

/// Releases what eager gradients would read, which plans do not need, before the step is built.
Setup make_setup(const Variable& root, const ExecutorOptions& options, bool gather_gradients,
                 const BuiltStep* built) {
  check_devices(options.devices);
  constexpr int64_t large = int64_t{1} << 24;
  if (root.defined() && release_values(*root.node()) >= large) release_cached_memory();
  return Setup(root, options, gather_gradients, built);
}

/// The devices that the options name, or that of the tree.
std::vector<Device> devices_of(const Setup& setup) {
  return setup.options.devices.empty() ? std::vector<Device>{setup.home} : setup.options.devices;
}

/// These devices, with memory for the leaves.
std::unique_ptr<Replicas> make_replicas(const Setup& setup, std::shared_ptr<Communicator> world) {
  auto replicas = std::make_unique<Replicas>(devices_of(setup), setup.options.launch, std::move(world));
  replicas->add_leaves(setup.arranged_leaves(), setup.written, setup.owners.get(),
                       setup.gathers_gradients(false));
  replicas->update_leaves();
  return replicas;
}

std::unique_ptr<Replicas> prepare_devices(Setup& setup) {
  const std::vector<Device> devices = devices_of(setup);
  const bool alone = !setup.options.replicas.distributed || distributed::size() == 1;
  const DeviceType type = devices[0].type;
  // Threads of one process compute and communicate on the same cores, so these cannot overlap.
  setup.prepare_for({.device = type,
                     .replicas = static_cast<int>(devices.size()) * (alone ? 1 : distributed::size()),
                     .overlaps = !alone || type != DeviceType::cpu});
  return make_replicas(setup, alone ? nullptr : distributed::world(caller_or()));
}

/// What `Trainer::runner_` is once several threads have called `run`.
const char many_threads = 0;

}  // namespace

Trainer::Trainer(const Variable& root, const ExecutorOptions& options, bool gather_gradients,
                 const BuiltStep* built)
    : setup_(make_setup(root, options, gather_gradients, built)),
      devices_(prepare_devices(setup_)),
      job_(setup_, *devices_),
      compiled_(setup_),
      plans_(setup_, *devices_, compiled_),
      run_(setup_.feeds, setup_.figures),
      value_(setup_, job_) {
  devices_->update_leaves();
  if (serves_threads()) devices_->first().kept.share(compiled_.kept());
  // The plans of an epoch: for whole batches, and for a short last one.
  if (setup_.feeds.knows_sizes(0)) plans_.at_step(0);
  const int64_t steps = setup_.feeds.has_placeholders_only() ? 0 : setup_.feeds.steps();
  if (steps > 0 && setup_.feeds.knows_sizes(steps - 1)) plans_.at_step(steps - 1);
}

History Trainer::execute(const ExecuteOptions& options) {
  if (options.epochs < 0) throw Error(fmt::format("execute: {} is not a number of epochs", options.epochs));
  if (options.checkpoint_every < 0)
    throw Error(fmt::format("execute: a checkpoint cannot come every {} steps", options.checkpoint_every));
  if (options.checkpoint_every > 0 && options.checkpoint.empty())
    throw Error(fmt::format("execute: a checkpoint every {} steps needs a folder: .checkpoint",
                            options.checkpoint_every));
  const Inside inside(occupancy_, "execute");
  give(options.feeds, "execute");
  return job_.guarded([&] { return EpochLoop::run(*this, options); });
}

void Trainer::give(const Feeds& given, const char* what) {
  if (!given.empty() || setup_.feeds.has_placeholders()) given_ = given_beside(setup_.feeds, given, what);
}

StepInfo Trainer::step(const Feeds& given) {
  const Inside inside(occupancy_, "step");
  give(given, "step");
  devices_->begin_after_eager();
  devices_->update_leaves();
  run_.follow_feeds();
  if (!step_readers_) step_readers_.emplace(make_readers());
  if (!step_readers_->is_before(run_.step())) step_readers_->start(run_.step());
  if (run_.step() >= setup_.feeds.steps()) {
    devices_->finish_before_eager();
    job_.gather_states();
    run_.finish_epoch();
    if (setup_.feeds.size() > 0) throw EndOfData();
    devices_->begin_after_eager();  // without a feed there is no end: every step is an epoch
    step_readers_->start(run_.step());
  }
  const Stopwatch watch;
  StepInfo info{.epoch = setup_.feeds.size() ? setup_.feeds[0].epoch() : 0,
                .step = run_.step(),
                .steps = setup_.feeds.steps()};
  (void)run_.begin_epoch();
  tell(Event::step_start, info);
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
  const PlanCache::Plans& found = plans_.at_step(run_.step(), given_);
  BatchPlans& plans = *found;
  profiler_.begin_step();
  run_plans(plans, readers, &profiler_);
  value_.set(found);
  devices_->first().note_loss(*plans.last().runtime);
  run_.add_step(plans.samples());
  info.samples = plans.samples();
  profiler_.end_step(plans.last().data);
}

void Trainer::run_plans(BatchPlans& plans, BatchSource& batch, Profiler* profiler) {
  plans.run(batch, generator().next_stream, profiler);
  generator().next_stream += static_cast<uint64_t>(plans.random_nodes());
  if (!plans.last().runtime->assigned().empty()) job_.note_update();
}

Tensor Trainer::run(const Feeds& given) {
  Tensor result;
  run(given, "run", false, [&](const TreeValue& values) { result = values.get(); });
  return result;
}

StepValues Trainer::run_outputs(const Feeds& given) {
  StepValues result;
  run(given, "run_outputs", true, [&](const TreeValue& values) {
    result.value = values.get();
    const auto& outputs = setup_.options.outputs;
    for (size_t i = 0; i < outputs.size(); ++i)
      result.outputs.emplace(outputs[i].first, output_in(values, i));
  });
  return result;
}

void Trainer::run(const Feeds& given, const char* what, bool outputs, ReadValues read) {
  if (!serves_threads()) {
    const Inside inside(occupancy_, what);
    return run_here(given, outputs, read);
  }
  note_thread();
  if (!occupancy_.try_enter(what)) return run_beside(given, read);
  const Leaving leaving(occupancy_);
  run_here(given, outputs, read);
}

void Trainer::run_here(const Feeds& given, bool outputs, ReadValues read) {
  GivenBatch batch(setup_.feeds, given, setup_.options.buckets);
  devices_->begin_after_eager();
  devices_->update_leaves();
  const PlanCache::Plans& plans = plans_.find(batch.signature());
  check_has_values(setup_, *plans, outputs);
  profiler_.begin_step();
  run_plans(*plans, batch, &profiler_);
  value_.set(plans, batch.rows());
  devices_->finish_before_eager();
  read(value_);
  profiler_.end_step(plans->last().data);
  profiler_.write_if_done();
}

void Trainer::run_beside(const Feeds& given, ReadValues read) {
  GivenBatch batch(setup_.feeds, given, setup_.options.buckets);
  const std::unique_ptr<Lane, void (*)(Lane*)> lane(take_lane(), Lanes::give_back);
  lane->devices->begin_after_eager();
  lane->devices->update_leaves();
  const PlanCache::Plans& plans = lane->plans.find(batch.signature());
  run_plans(*plans, batch, nullptr);
  lane->value.set(plans, batch.rows());
  lane->devices->finish_before_eager();
  read(lane->value);
}

Lane* Trainer::take_lane() {
  if (Lane* lane = lanes_.take()) return lane;
  return lanes_.add(std::make_unique<Lane>(setup_, job_, compiled_, make_replicas(setup_, nullptr)));
}

void Trainer::warm_up(const FeedShapes& shapes, int threads) {
  if (threads < 1) throw Error(fmt::format("warm_up: {} threads cannot run", threads));
  const Inside inside(occupancy_, "warm_up");
  const BatchSignature batch =
      in_bucket(signature_of(setup_.feeds, shapes), setup_.feeds, setup_.options.buckets);
  const PlanCache::Plans& plans = plans_.find(batch, PlanCache::For::warm_up);
  if (!serves_threads()) return;
  value_.keep();  // the last run's, whose memory is used
  plans->prepare();
  std::vector<std::unique_ptr<Lane, void (*)(Lane*)>> lanes;
  for (int i = 1; i < threads; ++i) {
    lanes.emplace_back(take_lane(), Lanes::give_back);
    lanes.back()->value.keep();
    lanes.back()->plans.find(batch, PlanCache::For::warm_up)->prepare();
  }
}

void Trainer::note_thread() {
  const void* known = runner_.load(std::memory_order_relaxed);
  if (known == this_thread() || known == &many_threads) return;
  if (!known && runner_.compare_exchange_strong(known, this_thread())) return;
  runner_ = &many_threads;
}

Tensor Trainer::value() {
  if (runner_.load(std::memory_order_relaxed) == &many_threads)
    throw Error("value: several threads have run this executor, and each run() has returned its value");
  const Visit visit(occupancy_, "value");
  return value_.get();
}

Tensor Trainer::output(std::string_view name) {
  const auto& outputs = setup_.options.outputs;
  const auto found =
      std::find_if(outputs.begin(), outputs.end(), [&](const auto& o) { return o.first == name; });
  if (found == outputs.end()) {
    std::vector<std::string_view> names;
    for (const auto& [known, output] : outputs) names.push_back(known);
    throw Error(fmt::format("output: the executor has no output '{}'; it has {}", name,
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (runner_.load(std::memory_order_relaxed) == &many_threads)
    throw Error(
        "output: several threads have run this executor, and so there is no last step; run_outputs() returns "
        "the outputs of its own");
  const Visit visit(occupancy_, "output");
  return output_in(value_, static_cast<size_t>(found - outputs.begin()));
}

Tensor Trainer::output_in(const TreeValue& values, size_t which) const {
  const size_t first = setup_.first_outputs[which];
  const PlanOutput& output = setup_.options.outputs[which].second;
  if (!output.finish()) return values.output(first);
  std::vector<double> means;
  for (size_t i = 0; i < output.variables().size(); ++i)
    internal::append_elements(values.output(first + i), means);
  return tensor(output.finish()(means), float64);
}

double Trainer::loss_scale() {
  const Visit visit(occupancy_, "loss_scale");
  return setup_.loss_scale ? setup_.loss_scale->factor().item() : 1;
}

BatchReaders Trainer::make_readers() {
  return BatchReaders(setup_.feeds, setup_.feeds, given_, feed_shards_, *devices_,
                      setup_.micro_batches(false));
}

double Trainer::settle_losses() {
  losses_.clear();
  if (run_.has_all_losses()) return 0;
  try {
    devices_->take_losses(losses_);
  } catch (...) {
    forget_losses();
    throw;
  }
  run_.add_losses(losses_);
  return losses_[losses_.size() - run_.numbers()];
}

void Trainer::forget_losses() {
  run_.forget_losses();
  devices_->forget_losses();
}

void Trainer::on(Event event, std::function<void(const StepInfo&)> f) {
  const Visit visit(occupancy_, "on");
  listeners_.push_back({EventSet().set(static_cast<size_t>(event)),
                        [f = std::move(f)](Event, const StepInfo& info) { f(info); }});
}

void Trainer::use(const AnyCallback& any) {
  const Visit visit(occupancy_, "use");
  listeners_.push_back({any.events(), [this, callback = any.callback()](Event event, const StepInfo& info) {
                          TrainingRun run(*this, info);
                          switch (event) {
                            case Event::initialize: return callback->initialize(run);
                            case Event::epoch_start: return callback->epoch_start(run);
                            case Event::step_start: return callback->step_start(run);
                            case Event::step_finish: return callback->step_finish(run);
                            case Event::validation_start: return callback->validation_start(run);
                            case Event::validation_finish: return callback->validation_finish(run);
                            case Event::epoch_finish: return callback->epoch_finish(run);
                            case Event::teardown: return callback->teardown(run);
                          }
                        }});
}

EventSet Trainer::events_listened() const {
  EventSet events;
  for (const Listener& listener : listeners_) events |= listener.events;
  return events;
}

void Trainer::tell(Event event, const StepInfo& info) {
  if (!listens(event)) return;
  devices_->finish_before_eager();
  const size_t count = listeners_.size();  // a listener may add others
  for (size_t i = 0; i < count; ++i)
    if (listeners_[i].events[static_cast<size_t>(event)])
      job_.guarded_own([&] { listeners_[i].call(event, info); });
  devices_->begin_after_eager();
}

void Trainer::checkpoint(const std::filesystem::path& folder) {
  const Visit visit(occupancy_, "checkpoint");
  job_.guarded([&] {
    settle_losses();
    devices_->finish_before_eager();
    job_.gather_states();
    devices_->confirm();
    if (job_.is_first()) write_checkpoint(folder, take_checkpoint(setup_, run_.state_now()));
  });
  job_.wait_for_checkpoint();
}

void Trainer::with_settled_leaves(const char* what, FunctionRef<void(const Setup&)> f) {
  const Visit visit(occupancy_, what);
  devices_->finish_before_eager();
  job_.gather_states();
  f(setup_);
}

void Trainer::resume(const std::filesystem::path& folder) {
  const Inside inside(occupancy_, "resume");
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
  if (!gemm_choices().set(file.checkpoint.products)) return;
  plans_.clear();  // they keep the library of each product
  compiled_.clear();
}

void Trainer::save(const std::filesystem::path& path, const SaveOptions& options) {
  const bool within = occupancy_.has_this_thread();  // a callback calls
  const Visit visit(occupancy_, "save");
  job_.guarded([&] {
    settle_losses();
    devices_->finish_before_eager();
    job_.gather_states();
    devices_->confirm();
    if (job_.is_first())
      write_plan(path, setup_, {take_run(setup_, run_.state_now()), within || run_.resumes()},
                 options.columns);
  });
  job_.wait_for_checkpoint();
}

void Trainer::continue_run(const Checkpoint& saved, bool within) {
  RunState state = espalier::continue_run(saved, setup_);
  within ? run_.resume(std::move(state)) : run_.place(std::move(state));
}

std::vector<ValueInfo> Trainer::inputs() {
  std::vector<ValueInfo> inputs;
  for (const auto& feed : setup_.feeds.all()) {
    if (!feed->is_placeholder()) continue;
    Spec spec = feed->specs()[0];
    for (const OpenAxis& open : feed->open_axes()) spec.shape.dims()[open.axis] = -1;
    inputs.push_back({feed->name(), spec.dtype, spec.shape});
  }
  return inputs;
}

std::vector<ValueInfo> Trainer::outputs() {
  const auto info = [](std::string name, const Variable& value) {
    Shape shape = value.shape();
    for (size_t axis = 0; axis < shape.rank(); ++axis)
      if (is_open_axis(value, static_cast<int64_t>(axis))) shape.dims()[axis] = -1;
    return ValueInfo{std::move(name), value.dtype(), shape};
  };
  std::vector<ValueInfo> outputs{info("value", setup_.root)};
  for (const auto& [name, output] : setup_.options.outputs)
    outputs.push_back(output.finish() ? ValueInfo{name, float64, {}} : info(name, output.variables()[0]));
  return outputs;
}

std::vector<LeafInfo> Trainer::leaves() {
  std::vector<LeafInfo> leaves;
  for (const Variable& leaf : setup_.leaves)
    leaves.push_back({std::string(leaf.node()->op().name()), is_trained(*leaf.node()), leaf});
  return leaves;
}

const BatchPlans& Trainer::main_plans() {
  if (setup_.feeds.knows_sizes(0)) return *plans_.at_step(0);
  if (!plans_.last())
    throw Error(
        "there is no plan yet: run(), step() or warm_up() must tell the sizes of placeholders with open "
        "axes, or beside a short batch");
  return *plans_.last();
}

Plan Trainer::plan() {
  const Visit visit(occupancy_, "plan");
  return Plan(main_plans().last().data);
}

void Trainer::profile(const std::filesystem::path& trace, const ProfileOptions& options) {
  const Visit visit(occupancy_, "profile");
  profiler_.start(trace, options);
}

void Trainer::report(const std::filesystem::path& html) {
  const Visit visit(occupancy_, "report");
  auto plan = main_plans().last().data;
  if (!profiler_.times(*plan) && profiler_.busiest()) plan = profiler_.busiest();
  write_report(html, *plan, profiler_.times(*plan));
}

}  // namespace espalier
