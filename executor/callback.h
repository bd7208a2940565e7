// Callback: what listens to a run, as a class of one's own. `Executor::on` takes a function instead.
#pragma once
#include <bitset>
#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/executor/history.h"
#include "espalier/optim/optimizer.h"

namespace espalier {

class Trainer;

/// What a callback sees of the run that calls it, and may do to it. It lives as long as the call.
class TrainingRun {
 public:
  using Where = std::source_location;

  /// Where the run is, as `Executor::on` tells it.
  const StepInfo& info() const { return info_; }
  /// The finished epochs.
  const History& history() const;
  /// The epoch under way, as far as it has come; behind its end, that epoch.
  EpochRecord epoch() const;
  /// A figure of `epoch()`: "loss" (its mean), "validation_loss", an output by its name, or in validation
  /// "validation_" and its name. Throws Error, naming those that there are, for another name.
  double figure(std::string_view name, Where where = Where::current()) const;
  /// Throws Error, naming those that there are, if epochs of this run have no such figure. The message begins
  /// with `caller`.
  void check_figure(std::string_view caller, std::string_view name) const;
  /// The names of all figures.
  std::vector<std::string> figures() const;
  /// One of `ExecutorOptions::outputs` after the last step.
  Tensor output(std::string_view name, Where where = Where::current()) const;

  /// The tree that is trained.
  const Variable& tree() const;
  /// Parameters and states that the tree itself reads or writes: not the states of the optimizer.
  std::vector<Variable> leaves() const;
  /// The optimizer of the executor's options; null if the tree came with its updates.
  const optim::Optimizer* optimizer() const;
  /// Whether this process writes what a job of several processes writes once.
  bool is_first() const;
  /// In `teardown`: whether the run ends by an exception.
  bool failed() const;
  /// As `Executor::stop`.
  void stop() const;

 private:
  friend class Trainer;
  TrainingRun(Trainer& trainer, const StepInfo& info) : trainer_(trainer), info_(info) {}

  Trainer& trainer_;
  StepInfo info_;
};

/// A set of events.
using EventSet = std::bitset<event_count>;

/// A class of one's own overrides what it wants to hear of; `Executor::use` registers it. An exception leaves
/// by `execute`: parameters, states and the position are then as after the last whole step. The tree may be
/// used and changed in each call. To listen to steps makes each of them wait for its loss; what is not
/// overridden costs nothing. In a job of several processes all must use the same callbacks, and each is
/// called in every process.
class Callback {
 public:
  virtual ~Callback() = default;
  /// `execute` begins.
  virtual void initialize(TrainingRun&) {}
  virtual void epoch_start(TrainingRun&) {}
  virtual void step_start(TrainingRun&) {}
  virtual void step_finish(TrainingRun&) {}
  /// Around the validation of an epoch, if there is one.
  virtual void validation_start(TrainingRun&) {}
  virtual void validation_finish(TrainingRun&) {}
  virtual void epoch_finish(TrainingRun&) {}
  /// `execute` ends, also by an exception; what this throws then is dropped.
  virtual void teardown(TrainingRun&) {}
  /// The events that the object listens to, when it is registered: those whose functions are overridden. Some
  /// may do without.
  virtual EventSet events(EventSet overridden) const { return overridden; }
};

namespace internal {

/// The events that a class listens to: those whose functions are not the ones of Callback. A function that is
/// not public counts as its own.
template <class C>
EventSet overridden_events() {
  using Function = void (Callback::*)(TrainingRun&);
  EventSet events;
  const auto set = [&](Event event, bool overridden) { events.set(static_cast<size_t>(event), overridden); };
  set(
      Event::initialize, !requires(Function f) { f = &C::initialize; });
  set(
      Event::epoch_start, !requires(Function f) { f = &C::epoch_start; });
  set(
      Event::step_start, !requires(Function f) { f = &C::step_start; });
  set(
      Event::step_finish, !requires(Function f) { f = &C::step_finish; });
  set(
      Event::validation_start, !requires(Function f) { f = &C::validation_start; });
  set(
      Event::validation_finish, !requires(Function f) { f = &C::validation_finish; });
  set(
      Event::epoch_finish, !requires(Function f) { f = &C::epoch_finish; });
  set(
      Event::teardown, !requires(Function f) { f = &C::teardown; });
  return events;
}
/// Any may be behind a pointer to the base.
template <>
inline EventSet overridden_events<Callback>() {
  return EventSet().set();
}

}  // namespace internal

/// Any callback, with the events that its class listens to: made from an object, of which it has a copy, or
/// from a pointer, when the caller goes on to look at the same one.
class AnyCallback {
 public:
  template <std::derived_from<Callback> C>
  AnyCallback(C callback) : AnyCallback(std::make_shared<C>(std::move(callback))) {}
  template <std::derived_from<Callback> C>
  AnyCallback(const std::shared_ptr<C>& callback) : callback_(callback) {
    if (callback_) events_ = callback_->events(internal::overridden_events<C>());
  }

  const std::shared_ptr<Callback>& callback() const { return callback_; }
  const EventSet& events() const { return events_; }

 private:
  std::shared_ptr<Callback> callback_;
  EventSet events_;
};

}  // namespace espalier
