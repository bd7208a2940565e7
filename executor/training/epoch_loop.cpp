#include "espalier/executor/training/epoch_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "espalier/core/defaults.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier {

namespace {

/// The part of the epochs that was done before this call of `execute`.
double done_before(const RunLog& run, int64_t steps, int64_t epochs) {
  const double of_epoch = static_cast<double>(run.step()) / static_cast<double>(steps);
  return epochs ? (static_cast<double>(run.epoch()) + of_epoch) / static_cast<double>(epochs) : 0;
}

/// Lets devices work on their copies of the leaves; afterwards eager work follows theirs, and a leaf's value
/// is copied when it is asked for.
class OnDevices {
 public:
  explicit OnDevices(Replicas& devices) : devices_(devices) {
    devices_.begin_after_eager();
    devices_.update_leaves();
  }
  void end() {
    ended_ = true;
    devices_.finish_before_eager();
  }
  /// After an error.
  ~OnDevices() {
    if (ended_) return;
    devices_.forget_losses();
    try {
      end();
    } catch (const std::exception&) {  // the device is broken, and the error that broke it is being thrown
    }
  }
  OnDevices(const OnDevices&) = delete;
  OnDevices& operator=(const OnDevices&) = delete;

 private:
  Replicas& devices_;
  bool ended_ = false;
};

}  // namespace

EpochLoop::EpochLoop(Trainer& trainer, const ExecuteOptions& options)
    : trainer_(trainer),
      options_(options),
      readers_(trainer.make_readers()),
      progress_(options.progress.value_or(defaults().progress) && trainer.job_.is_first(),
                done_before(trainer.run_, trainer.setup_.feeds.steps(), options.epochs)),
      interrupt_(options.handle_interrupt.value_or(defaults().handle_interrupt)) {
  if (const auto& validation = trainer.setup_.options.validation)
    validation_.emplace(trainer.setup_.feeds.with_data(validation->feed()), trainer.setup_.feeds,
                        trainer.given_, trainer.feed_shards_, *trainer.devices_, 1);
}

History EpochLoop::run(Trainer& trainer, const ExecuteOptions& options) {
  if (!options.checkpoint.empty() && trainer.job_.is_first()) make_checkpoint_folder(options.checkpoint);
  OnDevices on_devices(*trainer.devices_);
  trainer.stopped_ = false;
  trainer.step_readers_.reset();
  trainer.forget_losses();
  trainer.run_.begin_run();
  trainer.job_.begin_run(trainer.events_listened());
  EpochLoop loop(trainer, options);  // its batches stay until the devices have finished
  const History history = loop.run_with_callbacks();
  trainer.job_.end_run();
  trainer.profiler_.finish();
  trainer.devices_->finish_before_eager();
  trainer.job_.gather_states();
  on_devices.end();
  return history;
}

History EpochLoop::run_with_callbacks() {
  trainer_.failed_ = false;
  const auto now = [&] {
    const RunLog& run = trainer_.run_;
    return StepInfo{.epoch = run.epoch(), .step = run.step(), .steps = trainer_.setup_.feeds.steps()};
  };
  std::optional<History> history;
  try {
    trainer_.tell(Event::initialize, now());
    if (!interrupted(Event::initialize)) run_epochs();
    history = finish_run();
  } catch (...) {
    trainer_.failed_ = true;
    try {
      trainer_.tell(Event::teardown, now());
    } catch (...) {  // the first exception is being thrown
    }
    throw;
  }
  trainer_.tell(Event::teardown, now());
  trainer_.devices_->update_leaves();  // a callback may have set values
  return *history;
}

void EpochLoop::run_epochs() {
  while (trainer_.run_.epoch() < options_.epochs && !trainer_.stopped_)
    if (!run_epoch()) break;
}

History EpochLoop::finish_run() {
  if (unsaved_) leave_checkpoint();
  History history = trainer_.run_.state().history;
  if (ends_within_epoch_) history.epochs.push_back(trainer_.run_.record_now());
  history.interrupted = interrupt_.close() || interrupted_;
  return history;
}

bool EpochLoop::run_epoch() {
  RunLog& run = trainer_.run_;
  StepInfo info{.epoch = run.epoch(), .step = run.step(), .steps = trainer_.setup_.feeds.steps()};
  if (!run.begin_epoch()) {
    trainer_.tell(Event::epoch_start, info);
    if (interrupted(Event::epoch_start)) return false;
  }
  readers_.start(run.step());
  const Stopwatch watch;
  const double seconds_before = run.state().record.seconds;
  while (run.step() < info.steps && !trainer_.stopped_) {
    take_step(info, seconds_before, watch);
    if (interrupted(Event::step_finish)) return false;
    const int64_t done = info.epoch * info.steps + run.step();
    if (options_.checkpoint_every > 0 && done % options_.checkpoint_every == 0) leave_checkpoint();
  }
  settle_losses();
  if (run.step() < info.steps) {  // stopped; a checkpoint goes on with the next batch
    ends_within_epoch_ = true;
    return false;
  }
  trainer_.devices_->confirm();
  run.set_seconds(seconds_before + watch.seconds());  // now all steps are done
  if (validation_) {
    info.step = run.step();
    trainer_.tell(Event::validation_start, info);
    const auto sums = validate();
    if (!sums) return false;
    run.set_validation(*sums);
    info.validation_loss = run.state().record.validation_loss;
    trainer_.tell(Event::validation_finish, info);
  }
  finish_epoch(info);
  if (options_.checkpoint_every == 0) leave_checkpoint();
  return !interrupted(Event::epoch_finish);
}

void EpochLoop::take_step(StepInfo& info, double seconds_before, const Stopwatch& watch) {
  RunLog& run = trainer_.run_;
  info.step = run.step();
  trainer_.tell(Event::step_start, info);
  try {
    trainer_.train_step(readers_, info);
  } catch (const NumericError& error) {  // from find_nan
    throw NumericError(
        fmt::format("execute: in step {} of epoch {}, {}", info.step, info.epoch, error.what()));
  }
  unsaved_ = true;
  if (trainer_.devices_->first().losses_due() || trainer_.listens(Event::step_finish) || progress_.due())
    info.loss = settle_losses();
  info.seconds = seconds_before + watch.seconds();
  run.set_seconds(info.seconds);
  trainer_.tell(Event::step_finish, info);
  if (run.has_all_losses()) {
    const auto samples = static_cast<double>(run.state().record.samples);
    progress_.step(info.epoch, options_.epochs, run.step(), info.steps, run.state().weighted / samples,
                   samples / info.seconds);
  }
  trainer_.profiler_.write_if_done();
}

double EpochLoop::settle_losses() {
  const double newest = trainer_.settle_losses();
  if (!options_.stop_on_nan || !trainer_.setup_.training()) return newest;
  const int64_t most = trainer_.setup_.loss_scale ? LossScale::steps_to_least : 1;
  const std::vector<double>& numbers = trainer_.settled_losses();
  const size_t each = trainer_.run_.numbers(), steps = numbers.size() / each;
  size_t bad = 0;
  for (; bad < steps; ++bad) {
    if (std::isnan(numbers[bad * each])) {
      good_in_row_ = 0;
      if (++skipped_ >= most) break;
    } else if (++good_in_row_ >= static_cast<int64_t>(LossScale::good_steps_until_doubled)) {
      good_in_row_ = 0;
      skipped_ = std::max<int64_t>(skipped_ - 1, 0);
    }
  }
  if (bad == steps) return newest;
  const int64_t taken = trainer_.run_.step(), step = taken - static_cast<int64_t>(steps - bad);
  if (most > 1)
    throw NumericError(fmt::format(
        "execute: the loss of step {} of epoch {} is NaN, as it was in {} steps before. Such steps change no "
        "parameter and halve the factor of the loss, which is at its least. Look for data that are not "
        "finite, or for values that float16 cannot hold; .stop_on_nan = false goes on",
        step, trainer_.run_.epoch(), most - 1));
  throw NumericError(
      fmt::format("execute: the loss of step {} of epoch {} is NaN; {} steps of this epoch are done, and the "
                  "parameters are as after the last one. Look for a rate that is too high, or for data that "
                  "are not finite; .stop_on_nan = false goes on",
                  step, trainer_.run_.epoch(), taken));
}

std::optional<StepSums> EpochLoop::validate() {
  Replicas& devices = *trainer_.devices_;
  const Feed& feed = *trainer_.setup_.options.validation->feed();
  devices.update_leaves();
  devices.finish_before_eager();
  trainer_.value_.keep();
  devices.begin_after_eager();
  const TreeFeeds feeds = trainer_.setup_.feeds.with_data(trainer_.setup_.options.validation->feed());
  BatchSignature sizes;
  StepSums sums(trainer_.setup_.figures);
  std::vector<int64_t> samples;  // of the steps whose losses are not known yet
  std::vector<double> losses;
  int64_t steps = 0;
  const auto take_losses = [&] {
    losses.clear();
    devices.take_losses(losses);
    const size_t each = trainer_.run_.numbers();
    for (size_t i = 0; i < samples.size(); ++i)
      sums.add(std::span(losses).subspan(i * each, each), samples[i]);
    samples.clear();
  };
  validation_->start(0);
  for (int64_t step = 0; step < feed.steps() && !interrupted(); ++step) {
    feeds.read_sizes(step, trainer_.given_, sizes);
    BatchPlans& plans = *trainer_.plans_.find(sizes, PlanCache::For::validation);
    const int64_t before = (trainer_.run_.epoch() * feed.steps() + step) * plans.random_nodes();
    plans.run(*validation_, validation_stream(static_cast<uint64_t>(before)), nullptr);
    devices.first().note_loss(*plans.last().runtime);
    samples.push_back(plans.samples());
    ++steps;
    if (devices.first().losses_due()) take_losses();
  }
  take_losses();
  return steps < feed.steps() ? std::nullopt : std::optional(sums);
}

void EpochLoop::finish_epoch(StepInfo& info) {
  const EpochRecord record = trainer_.run_.finish_epoch();
  unsaved_ = true;
  progress_.finish_epoch(info.epoch, options_.epochs, record.loss_mean, record.validation_loss,
                         static_cast<double>(record.samples) / record.seconds);
  info.step = info.steps;
  info.samples = record.samples;
  info.loss = record.loss_mean;
  info.validation_loss = record.validation_loss;
  info.seconds = record.seconds;
  trainer_.tell(Event::epoch_finish, info);
}

bool EpochLoop::interrupted(std::optional<Event> told) {
  const StopRequest all =
      trainer_.job_.agree({interrupt_.requested(), trainer_.stopped_}, told, trainer_.run_.step());
  trainer_.stopped_ = trainer_.stopped_ || all.stop;
  interrupted_ = interrupted_ || all.interrupt;
  return all.interrupt;
}

void EpochLoop::leave_checkpoint() {
  if (options_.checkpoint.empty()) return;
  settle_losses();
  trainer_.checkpoint(options_.checkpoint);
  unsaved_ = false;
}

}  // namespace espalier
