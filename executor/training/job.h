// Job: what the processes of a job do together: begin alike, agree, gather states, and hear of errors.
#pragma once
#include <exception>
#include <optional>
#include <vector>

#include "espalier/executor/callback.h"
#include "espalier/executor/communicators/caller.h"
#include "espalier/executor/replicas/replicas.h"
#include "espalier/executor/training/checkpoint.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// What a process asks all of them to do after a step.
struct StopRequest {
  bool interrupt = false;  ///< a signal came
  bool stop = false;       ///< a callback called stop()
};

/// All processes call the same functions in the same order. Where there is only one process, each function
/// does nothing, or returns what it was given. Communication throws CommunicatorError.
class Job {
 public:
  /// Throws CommunicatorError unless all processes have made the same executor; then all begin with the
  /// leaves and the random state of the first one.
  Job(const Setup& setup, Replicas& devices);

  /// Whether this process prints and writes checkpoints.
  bool is_first() const;
  /// Begins and ends a run of epochs. `listening` are the events that this process has callbacks for.
  void begin_run(const EventSet& listening);
  void end_run() const;
  /// What any process requests, known to all of them after the same step. It may be known only some steps
  /// later unless callbacks were `told` of an event just now, since these may stop the run.
  StopRequest agree(StopRequest own, std::optional<Event> told, int64_t step) const;

  /// Notes that a step has written leaves.
  void note_update() { states_apart_ = true; }
  /// Brings the states that other processes keep up to date in the tree.
  void gather_states();
  /// Concatenates the processes' tensors along an axis; process r has `sizes[r]` along it.
  Tensor gather(const Tensor& own, size_t axis, const std::vector<int64_t>& sizes) const;

  /// Waits until the first process has written a checkpoint.
  void wait_for_checkpoint() const;
  /// Throws FileError if other processes have found no checkpoint, or another one. `error` is why this one
  /// has found none.
  void agree_on_checkpoint(const CheckpointFile& file, const std::exception_ptr& error) const;

  /// Calls `f`. What it throws fails the other processes, too.
  template <class F>
  auto guarded(F&& f) const {
    try {
      return f();
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
  }
  /// The same for a function of the user's, which may call others that communicate.
  template <class F>
  auto guarded_own(F&& f) const {
    const WithoutCaller own;
    return guarded(std::forward<F>(f));
  }

 private:
  void fail(std::exception_ptr error) const noexcept;
  void check_same() const;
  void share_generator() const;
  void share_leaves() const;

  const Setup& setup_;
  Replicas& devices_;
  std::shared_ptr<Communicator> world_;  // null: this process is alone
  EventSet listening_;                   // to each event, in any process
  bool states_apart_ = false;            // whether states were written since they were gathered
};

}  // namespace espalier
