// What is behind an Executor. Its parts have a file each: setup.cpp makes it from a tree and options,
// training_loop.cpp runs epochs, stepping.cpp single steps, resume.cpp leaves and takes up checkpoints.
#pragma once
#include <deque>
#include <map>

#include "espalier/data/prefetch.h"
#include "espalier/executor/checkpoint.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/interrupt.h"
#include "espalier/executor/loss_scale.h"
#include "espalier/executor/profiler.h"
#include "espalier/executor/progress.h"
#include "espalier/executor/session.h"

namespace espalier {

class Executor::Impl {
 public:
  Impl(const Variable& root, const ExecutorOptions& options);

  History execute(const ExecuteOptions& options);
  StepInfo step();
  Tensor run(const Feeds& given);
  Tensor value() const;
  double loss_scale() const { return loss_scale_ ? loss_scale_->factor().item() : 1; }
  void checkpoint(const std::filesystem::path& folder);
  void resume(const std::filesystem::path& folder);

  /// Functions stay where they are when others are added, since one may be running.
  void on(Event event, std::function<void(const StepInfo&)> f) {
    listeners_.emplace_back(event, std::move(f));
  }
  void stop() { stopped_ = true; }
  Plan plan() { return Plan(plan_for(rows_at(0), false).data); }
  void profile(const std::filesystem::path& trace, const ProfileOptions& options) {
    profiler_.start(trace, options);
  }
  void report(const std::filesystem::path& html);

 private:
  using Rows = std::vector<int64_t>;
  using Readers = std::vector<std::unique_ptr<data::Prefetcher>>;
  /// A plan with its memory, for batches of these sizes.
  struct Bound {
    std::shared_ptr<const PlanData> data;
    std::unique_ptr<Runtime> runtime;
    Rows rows;
    int64_t samples = 0;
  };
  /// The plans of an epoch: those for whole batches and for a short last one, found before its first step.
  struct StepPlans {
    Bound* known[2] = {};
  };
  /// What one call of `execute` has, beside the executor.
  struct Loop;
  /// Refuses what a callback asks of an executor that is busy.
  class Busy;

  // setup.cpp
  void choose_mode();
  void choose_device();
  void check_options() const;
  void find_updates();
  void check_validation() const;

  // stepping.cpp
  bool training() const { return *options_.mode == Mode::training; }
  /// Whether the tree waits for run() to give it values.
  bool placeholders() const;
  void need_data(std::string_view what) const;
  int64_t steps() const;
  Rows rows_at(int64_t step) const;
  Bound& plan_for(const Rows& rows, bool inference);
  Bound& resolve(StepPlans& plans, const Rows& rows, bool inference);
  void prepare_epoch();
  data::Prefetcher::Allocate new_batch() const;
  Readers make_readers() const;
  void start(Readers& readers) const;
  void train_step(Readers& readers, StepInfo& info);
  void run_plan(Runtime& runtime);
  /// Adds the losses of the steps since the last call to the epoch's, and returns the newest; 0 if there are
  /// none.
  double settle_losses();
  void forget_losses();
  /// A result as the user gets it: a copy, on the device of the tree.
  Tensor at_home(const Tensor& result) const {
    return home_ == session_->device() ? result.clone() : result.to(home_);
  }

  // training_loop.cpp
  bool run_epoch(Loop& loop);
  bool validate(Loop& loop, double& loss);
  void finish_epoch();
  bool listens(Event event) const;
  void tell(Event event, const StepInfo& info);

  /// A number that changes with every epoch of every feed.
  int64_t epochs_of_feeds() const;
  /// Begins the epoch anew if somebody has reset a feed.
  void follow_feeds();
  /// What has been done of the epoch is forgotten, or has been noted.
  void begin_epoch();

  // resume.cpp
  std::vector<FeedState> feed_states() const;
  void check_fit(const CheckpointFile& file) const;

  Variable root_;
  ExecutorOptions options_;
  std::vector<Variable> updates_;
  std::vector<std::pair<Variable, Variable>> bucket_;  // parameters and gradients, if they are to be gathered
  std::optional<LossScale> loss_scale_;                // training in float16
  std::vector<std::shared_ptr<Feed>> feeds_;
  std::vector<Variable> leaf_list_;  // in the order of writing
  std::unique_ptr<Session> session_;
  Device home_;                     // of the tree
  std::vector<int64_t> unsettled_;  // the samples of steps whose losses are not in `run_` yet
  std::vector<double> losses_;
  std::map<std::pair<bool, Rows>, Bound> plans_;
  StepPlans training_plans_, validation_plans_;
  Rows rows_;  // of the step at hand
  Runtime* last_ = nullptr;
  Tensor last_value_;
  std::deque<std::pair<Event, std::function<void(const StepInfo&)>>> listeners_;
  bool stopped_ = false;
  Profiler profiler_;
  bool busy_ = false;

  RunState run_;
  int64_t run_epochs_ = 0;  // epochs_of_feeds() that `run_.step` belongs to
  bool resumed_ = false;    // the next execute() goes on with `run_`
  Readers step_readers_;
  int64_t step_epoch_ = 0;  // epochs_of_feeds() that they read
};

class Executor::Impl::Busy {
 public:
  Busy(bool& busy, const char* what);
  ~Busy() { busy_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  bool& busy_;
};

}  // namespace espalier
