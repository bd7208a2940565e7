// Epochs: steps, validation, checkpoints, and who is told of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "espalier/core/error.h"
#include "espalier/executor/executor_impl.h"

namespace espalier {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Executor::Impl::Busy::Busy(bool& busy, const char* what) : busy_(busy) {
  if (busy) throw Error(fmt::format("{}: the executor is in the middle of a step, which called this", what));
  busy_ = true;
}

struct Executor::Impl::Loop {
  Loop(const Impl& executor, const ExecuteOptions& o)
      : options(o),
        readers(executor.make_readers()),
        progress(o.progress, done_before(executor, o)),
        interrupt(o.handle_interrupt) {
    if (executor.options_.validation)
      validation =
          std::make_unique<data::Prefetcher>(executor.options_.validation->feed(), executor.new_batch());
  }
  static double done_before(const Impl& executor, const ExecuteOptions& o) {
    const double epochs = static_cast<double>(executor.run_.history.epochs.size()),
                 of_epoch = static_cast<double>(executor.run_.step) / static_cast<double>(executor.steps());
    return o.epochs ? (epochs + of_epoch) / static_cast<double>(o.epochs) : 0;
  }

  const ExecuteOptions& options;
  Readers readers;
  std::unique_ptr<data::Prefetcher> validation;
  Progress progress;
  Interrupt interrupt;
  bool unsaved = false;  // whether something was done since the last checkpoint
};

History Executor::Impl::execute(const ExecuteOptions& options) {
  if (options.epochs < 0) throw Error(fmt::format("execute: {} is not a number of epochs", options.epochs));
  if (options.checkpoint_every < 0)
    throw Error(fmt::format("execute: a checkpoint cannot come every {} steps", options.checkpoint_every));
  need_data("execute");
  const Busy busy(busy_, "execute");
  if (!options.checkpoint.empty()) make_checkpoint_folder(options.checkpoint);
  session_->enter();
  session_->update_leaves();
  struct Leave {  // what users take from leaves afterwards is theirs
    Impl& executor;
    bool done = false;
    void now() {
      done = true;
      executor.session_->leave();
      executor.session_->leaves.unbind();
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
  step_readers_.clear();
  forget_losses();
  if (!std::exchange(resumed_, false)) {
    run_ = {};
    run_epochs_ = epochs_of_feeds();
  }
  follow_feeds();
  Loop loop(*this, options);
  while (static_cast<int64_t>(run_.history.epochs.size()) < options.epochs && !stopped_)
    if (!run_epoch(loop)) break;
  if (loop.unsaved && !options.checkpoint.empty()) checkpoint(options.checkpoint);
  History history = run_.history;
  history.interrupted = loop.interrupt.close();
  profiler_.finish();
  at_end.now();
  return history;
}

/// Goes on with the epoch to its end. False: a signal has come before that.
bool Executor::Impl::run_epoch(Loop& loop) {
  const auto epoch = static_cast<int64_t>(run_.history.epochs.size());
  StepInfo info{.epoch = epoch, .step = run_.step, .steps = steps()};
  if (!std::exchange(run_.begun, true)) tell(Event::epoch_start, info);
  start(loop.readers);
  const auto begin = Clock::now();
  const double before = run_.record.seconds;
  while (run_.step < info.steps && !stopped_) {
    info.step = run_.step;
    train_step(loop.readers, info);
    loop.unsaved = true;
    if (session_->losses_due() || listens(Event::step_finish) || loop.progress.due())
      info.loss = settle_losses();
    info.seconds = run_.record.seconds = before + since(begin);
    tell(Event::step_finish, info);
    const auto samples = static_cast<double>(run_.record.samples);
    if (unsettled_.empty())
      loop.progress.step(epoch, loop.options.epochs, run_.step, info.steps, run_.weighted / samples,
                         samples / info.seconds);
    profiler_.write_if_done();
    if (loop.interrupt.requested()) return false;
    if (const int64_t every = loop.options.checkpoint_every;
        every > 0 && !loop.options.checkpoint.empty() && (epoch * info.steps + run_.step) % every == 0) {
      checkpoint(loop.options.checkpoint);
      loop.unsaved = false;
    }
  }
  settle_losses();
  run_.record.seconds = before + since(begin);  // the last steps are done now
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
  return !loop.interrupt.requested();
}

/// The mean loss over the validation feed. False: a signal has come before its end.
bool Executor::Impl::validate(Loop& loop, double& loss) {
  const Feed& feed = *options_.validation->feed();
  session_->update_leaves();
  if (last_) {  // its memory is used again now
    session_->leave();
    last_value_ = at_home(last_->result(0));
    session_->enter();
  }
  last_ = nullptr;
  std::vector<int64_t> samples;
  std::vector<double> losses;
  loop.validation->start(feed.epoch());
  for (int64_t step = 0; step < feed.steps(); ++step) {
    if (loop.interrupt.requested()) break;
    rows_.assign(1, feed.rows(step));
    const Bound& bound = resolve(validation_plans_, rows_, true);
    session_->release_batches();
    bound.runtime->load(*feeds_[0], loop.validation->next());
    bound.runtime->run(0);
    session_->note_loss(*bound.runtime);
    samples.push_back(bound.samples);
    if (session_->losses_due()) session_->take_losses(losses);
  }
  session_->take_losses(losses);
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

void Executor::Impl::tell(Event event, const StepInfo& info) {
  if (!listens(event)) return;
  session_->leave();                       // a callback may compute with what has been trained, and change it
  const size_t count = listeners_.size();  // a callback may add others
  for (size_t i = 0; i < count; ++i)
    if (listeners_[i].first == event) listeners_[i].second(info);
  session_->enter();
}

}  // namespace espalier
