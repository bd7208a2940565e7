// Trainer: what is behind an Executor. It takes steps and epochs, calls listeners, and keeps checkpoints.
#pragma once
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "espalier/core/function_ref.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/report/profiler.h"
#include "espalier/executor/training/batch_readers.h"
#include "espalier/executor/training/job.h"
#include "espalier/executor/training/lanes.h"
#include "espalier/executor/training/occupancy.h"
#include "espalier/executor/training/plan_cache.h"
#include "espalier/executor/training/run_log.h"
#include "espalier/executor/training/setup.h"
#include "espalier/executor/training/tree_value.h"

namespace espalier {

/// One training step of a tree on one device reads from top to bottom in `step` and `train_step`. What
/// concerns several devices is in Replicas, several processes in Job, and whole epochs in EpochLoop. The
/// functions that users call are documented at Executor.
class Trainer {
 public:
  /// `gather_gradients`, `built`: see Setup.
  Trainer(const Variable& root, const ExecutorOptions& options, bool gather_gradients,
          const BuiltStep* built = nullptr);

  History execute(const ExecuteOptions& options);
  StepInfo step(const Feeds& given);
  Tensor run(const Feeds& given);
  StepValues run_outputs(const Feeds& given);
  void warm_up(const FeedShapes& shapes, int threads);
  Tensor value();
  Tensor output(std::string_view name);
  double loss_scale();

  void on(Event event, std::function<void(const StepInfo&)> f);
  void use(const AnyCallback& callback);
  void stop() { stopped_ = true; }
  void checkpoint(const std::filesystem::path& folder);
  void resume(const std::filesystem::path& folder);
  void save(const std::filesystem::path& path, const SaveOptions& options);
  /// Goes on where a run was when it was saved. `within`: the next `execute` goes on with that run.
  void continue_run(const Checkpoint& saved, bool within);

  Mode mode() const { return *setup_.options.mode; }
  std::vector<ValueInfo> inputs();
  std::vector<ValueInfo> outputs();
  std::vector<LeafInfo> leaves();

  /// Calls `f` while the tree's leaves have the values that the last step has left. `what` names the caller.
  void with_settled_leaves(const char* what, FunctionRef<void(const Setup&)> f);

  Plan plan();
  void profile(const std::filesystem::path& trace, const ProfileOptions& options);
  void report(const std::filesystem::path& html);
  /// The sums over samples of what a figure is made of, as `TrainingRun::figure` names it: the means of a
  /// Metric times the samples. Empty before the validation of the epoch. Throws Error as
  /// TrainingRun::check_figure.
  static std::vector<double> sums(const TrainingRun& run, std::string_view caller, std::string_view figure);

 private:
  friend class EpochLoop;
  friend class TrainingRun;

  /// Keeps the values of the placeholders for the steps of a call. Throws what `given_beside` throws.
  void give(const Feeds& given, const char* what);
  BatchReaders make_readers();
  /// Takes the next step of the epoch. Its loss is added to the log by `settle_losses`.
  void train_step(BatchReaders& readers, StepInfo& info);
  /// Loads a batch and runs the plans with the random numbers of this thread that come next.
  void run_plans(BatchPlans& plans, BatchSource& batch, Profiler* profiler);
  /// Whether several threads may be inside `run`.
  bool serves_threads() const { return !setup_.training() && devices_->size() == 1 && !devices_->world(); }
  void note_thread();
  /// Runs a step on these values, and calls `read` before another one may run.
  using ReadValues = FunctionRef<void(const TreeValue&)>;
  void run(const Feeds& given, const char* what, bool outputs, ReadValues read);
  void run_here(const Feeds& given, bool outputs, ReadValues read);
  void run_beside(const Feeds& given, ReadValues read);
  /// An output of the last step, by its place among the options.
  Tensor output_in(const TreeValue& values, size_t which) const;
  /// A lane that no other thread has.
  Lane* take_lane();
  /// For whole batches.
  const BatchPlans& main_plans();
  /// Waits for the losses of all steps so far, and returns the newest; 0 if all are in the log already.
  double settle_losses();
  /// The losses that the last call of `settle_losses` added.
  const std::vector<double>& settled_losses() const { return losses_; }
  void forget_losses();

  bool listens(Event event) const { return events_listened()[static_cast<size_t>(event)]; }
  EventSet events_listened() const;
  /// Calls the listeners, which may use and change the tree.
  void tell(Event event, const StepInfo& info);

  Setup setup_;
  std::unique_ptr<Replicas> devices_;  // of this process
  Job job_;
  CompiledPlans compiled_;
  PlanCache plans_;
  FeedShards feed_shards_;
  GivenValues given_;
  RunLog run_;
  TreeValue value_;
  Profiler profiler_;
  std::optional<BatchReaders> step_readers_;  // of `step`
  std::vector<double> losses_;
  struct Listener {
    EventSet events;
    std::function<void(Event, const StepInfo&)> call;
  };
  // A deque: a listener stays where it is while it runs and adds others.
  std::deque<Listener> listeners_;
  std::atomic<bool> stopped_ = false;
  bool failed_ = false;                        // whether the run is ending by an exception
  Occupancy occupancy_;                        // of all above
  Lanes lanes_;                                // of further threads that run an inference executor
  std::atomic<const void*> runner_ = nullptr;  // the thread that has called `run`, or `many_threads`
};

}  // namespace espalier
