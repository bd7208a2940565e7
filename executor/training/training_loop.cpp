// Epochs: steps, validation, checkpoints, and who is told of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>

#include "espalier/core/error.h"
#include "espalier/core/stopwatch.h"
#include "espalier/executor/communicators/communicator.h"
#include "espalier/executor/training/executor_impl.h"

namespace espalier {

namespace {}  // namespace

Executor::Impl::Busy::Busy(bool& busy, const char* what) : busy_(busy) {
  if (busy) throw Error(fmt::format("{}: the executor is in the middle of a step, which called this", what));
  busy_ = true;
}

struct Executor::Impl::Loop {
  Loop(Impl& executor, const ExecuteOptions& o)
      : options(o),
        readers(executor.make_readers(executor.feeds_, executor.parts(false))),
        progress(o.progress && executor.is_first_process(), done_before(executor, o)),
        interrupt(o.handle_interrupt),
        listening(executor.agree_on_listening()) {
    if (executor.options_.validation)
      validation = executor.make_readers({executor.options_.validation->feed()}, 1);
  }
  static double done_before(const Impl& executor, const ExecuteOptions& o) {
    const double epochs = static_cast<double>(executor.run_.history.epochs.size()),
                 of_epoch = static_cast<double>(executor.run_.step) / static_cast<double>(executor.steps());
    return o.epochs ? (epochs + of_epoch) / static_cast<double>(o.epochs) : 0;
  }

  const ExecuteOptions& options;
  std::vector<Readers> readers, validation;
  Progress progress;
  Interrupt interrupt;
  std::array<bool, 3> listening;  // to each event, in any process
  bool interrupted = false;       // also if the signal came to another process
  bool unsaved = false;           // whether something was done since the last checkpoint
};

History Executor::Impl::execute(const ExecuteOptions& options) {
  if (options.epochs < 0) throw Error(fmt::format("execute: {} is not a number of epochs", options.epochs));
  if (options.checkpoint_every < 0)
    throw Error(fmt::format("execute: a checkpoint cannot come every {} steps", options.checkpoint_every));
  need_data("execute");
  const Busy busy(busy_, "execute");
  try {
    return run_epochs(options);
  } catch (...) {
    tell_processes(std::current_exception());
    throw;
  }
}

History Executor::Impl::run_epochs(const ExecuteOptions& options) {
  if (!options.checkpoint.empty() && is_first_process()) make_checkpoint_folder(options.checkpoint);
  replicas_->begin_after_eager();
  replicas_->update_leaves();
  struct Leave {
    Impl& executor;
    bool done = false;
    void now() {
      done = true;
      executor.replicas_->finish_before_eager();
      executor.replicas_->fetch_leaves();
    }
    ~Leave() {
      if (done) return;
      executor.forget_losses();
      try {
        now();
      } catch (const std::exception&) {  // a broken device: what broke it is on its way to the user
      }
    }
  } at_end{*this};
  stopped_ = false;
  if (world()) world()->clear_stop();
  step_readers_.clear();
  forget_losses();
  if (!std::exchange(resumed_, false)) {
    run_ = {};
    run_epochs_ = epochs_of_feeds();
  }
  follow_feeds();
  share_generator();
  Loop loop(*this, options);
  while (static_cast<int64_t>(run_.history.epochs.size()) < options.epochs && !stopped_)
    if (!run_epoch(loop)) break;
  if (loop.unsaved && !options.checkpoint.empty()) checkpoint(options.checkpoint);
  History history = run_.history;
  history.interrupted = loop.interrupt.close() || loop.interrupted;
  if (world()) world()->clear_stop();
  profiler_.finish();
  replicas_->finish_before_eager();
  gather_states();
  at_end.now();
  return history;
}

/// Goes on with the epoch to its end. False: a signal has come before that.
bool Executor::Impl::run_epoch(Loop& loop) {
  const auto epoch = static_cast<int64_t>(run_.history.epochs.size());
  StepInfo info{.epoch = epoch, .step = run_.step, .steps = steps()};
  if (!std::exchange(run_.begun, true)) {
    tell(Event::epoch_start, info);
    if (ends(loop, Event::epoch_start)) return false;
  }
  start(loop.readers);
  const Stopwatch watch;
  const double before = run_.record.seconds;
  while (run_.step < info.steps && !stopped_) {
    info.step = run_.step;
    train_step(loop.readers, info);
    loop.unsaved = true;
    if (replicas_->first().losses_due() || listens(Event::step_finish) || loop.progress.due())
      info.loss = settle_losses();
    info.seconds = run_.record.seconds = before + watch.seconds();
    tell(Event::step_finish, info);
    const auto samples = static_cast<double>(run_.record.samples);
    if (unsettled_.empty())
      loop.progress.step(epoch, loop.options.epochs, run_.step, info.steps, run_.weighted / samples,
                         samples / info.seconds);
    profiler_.write_if_done();
    if (ends(loop, Event::step_finish)) return false;
    if (const int64_t every = loop.options.checkpoint_every;
        every > 0 && !loop.options.checkpoint.empty() && (epoch * info.steps + run_.step) % every == 0) {
      checkpoint(loop.options.checkpoint);
      loop.unsaved = false;
    }
  }
  settle_losses();
  replicas_->confirm();
  run_.record.seconds = before + watch.seconds();  // the last steps are done now
  if (options_.validation && !validate(loop, run_.record.validation_loss)) return false;
  finish_epoch();
  loop.unsaved = true;
  const EpochRecord record = run_.history.epochs.back();
  loop.progress.finish_epoch(epoch, loop.options.epochs, record.loss_mean, record.validation_loss,
                             static_cast<double>(record.samples) / record.seconds);
  info.step = info.steps;
  info.samples = record.samples;
  info.loss = record.loss_mean;
  info.validation_loss = record.validation_loss;
  info.seconds = record.seconds;
  tell(Event::epoch_finish, info);
  if (loop.options.checkpoint_every == 0 && !loop.options.checkpoint.empty()) {
    checkpoint(loop.options.checkpoint);
    loop.unsaved = false;
  }
  return !ends(loop, Event::epoch_finish);
}

/// Whether a signal has come, here or to another process of the job. If a callback has called stop(), in
/// whichever process, the run stops.
bool Executor::Impl::ends(Loop& loop, std::optional<Event> told) {
  // A callback may have called stop(), and all processes must learn of it at this step. On GPUs the flag does
  // not travel with the gradients, so it is polled.
  const bool by_gpus = world() && replicas_->first().device().type == DeviceType::cuda;
  const bool exactly =
      (told && loop.listening[static_cast<size_t>(*told)]) || (by_gpus && run_.step % 64 == 0);
  const Wishes wishes = agree({loop.interrupt.requested(), stopped_}, exactly);
  stopped_ = stopped_ || wishes.stop;
  loop.interrupted = loop.interrupted || wishes.interrupt;
  return wishes.interrupt;
}

/// The mean loss over the validation feed. False: a signal has come before its end.
bool Executor::Impl::validate(Loop& loop, double& loss) {
  const Feed& feed = *options_.validation->feed();
  replicas_->update_leaves();
  if (last_) {  // its memory is used again now
    replicas_->finish_before_eager();
    value_error_ = nullptr;
    try {
      last_value_ = result_of(*last_);
    } catch (const UnsupportedError&) {  // of interest to who asks for it
      value_error_ = std::current_exception();
    }
    replicas_->begin_after_eager();
  }
  last_ = nullptr;
  std::vector<int64_t> samples;
  std::vector<double> losses;
  for (Readers& readers : loop.validation) readers[0]->start(feed.epoch());
  for (int64_t step = 0; step < feed.steps(); ++step) {
    if (ends(loop)) break;
    rows_.assign(1, feed.rows(step));
    const Bound& bound = resolve(validation_plans_, rows_, true);
    replicas_->run([&](size_t i) {
      Runtime& runtime = *bound.parts[i].runtime;
      load(runtime, (*replicas_)[i], 0, *loop.validation[i][0], nullptr);
      runtime.run(0);
    });
    replicas_->first().note_loss(*bound.parts[0].runtime);
    samples.push_back(bound.samples);
    if (replicas_->first().losses_due()) replicas_->take_losses(losses);
  }
  replicas_->take_losses(losses);
  if (losses.size() < static_cast<size_t>(feed.steps())) return false;
  double weighted = 0;
  int64_t total = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    weighted += losses[i] * static_cast<double>(samples[i]);
    total += samples[i];
  }
  loss = weighted / static_cast<double>(total);
  return true;
}

/// Notes what the epoch has brought, and moves the feeds to the next.
void Executor::Impl::finish_epoch() {
  EpochRecord& record = run_.record;
  record.loss_mean = record.samples ? run_.weighted / static_cast<double>(record.samples) : 0;
  run_.history.epochs.push_back(record);
  for (const auto& feed : feeds_) feed->next_epoch();
  begin_epoch();
}

int64_t Executor::Impl::epochs_of_feeds() const {
  int64_t epochs = 0;
  for (const auto& feed : feeds_) epochs += feed->epoch();
  return epochs;
}

void Executor::Impl::begin_epoch() {
  run_.record = {};
  run_.weighted = 0;
  run_.step = 0;
  run_.begun = false;
  run_epochs_ = epochs_of_feeds();
}

void Executor::Impl::follow_feeds() {
  if (run_epochs_ != epochs_of_feeds()) begin_epoch();
}

bool Executor::Impl::listens(Event event) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& l) { return l.first == event; });
}

/// What a callback throws ends the run, here and in all processes.
void Executor::Impl::call(const std::function<void(const StepInfo&)>& listener, const StepInfo& info) const {
  try {
    listener(info);
  } catch (...) {
    tell_processes(std::current_exception());
    throw;
  }
}

void Executor::Impl::tell(Event event, const StepInfo& info) {
  if (!listens(event)) return;
  replicas_->finish_before_eager();        // a callback may compute with what has been trained, and change it
  const size_t count = listeners_.size();  // a callback may add others
  for (size_t i = 0; i < count; ++i)
    if (listeners_[i].first == event) call(listeners_[i].second, info);
  replicas_->begin_after_eager();
}

}  // namespace espalier
