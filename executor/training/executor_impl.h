// What is behind an Executor. Its parts have a file each: setup.cpp makes it from a tree and options,
// training_loop.cpp runs epochs, stepping.cpp single steps, resume.cpp leaves and takes up checkpoints.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "espalier/core/feed.h"
#include "espalier/data/prefetch.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/replicas/replicas.h"
#include "espalier/executor/report/profiler.h"
#include "espalier/executor/sharding/state_owners.h"
#include "espalier/executor/training/checkpoint.h"
#include "espalier/executor/training/interrupt.h"
#include "espalier/executor/training/loss_scale.h"
#include "espalier/executor/training/progress.h"

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
  Plan plan() { return Plan(main_part(plan_for(rows_at(0), false)).data); }
  void profile(const std::filesystem::path& trace, const ProfileOptions& options) {
    profiler_.start(trace, options);
  }
  void report(const std::filesystem::path& html);

 private:
  using Rows = std::vector<int64_t>;
  /// What one share of the rows of all batches is read by: the feeds' readers, in their order.
  using Readers = std::vector<std::unique_ptr<data::Prefetcher>>;
  /// A plan with its memory.
  struct Part {
    std::shared_ptr<const PlanData> data;
    std::unique_ptr<Runtime> runtime;
  };
  /// The plans for batches of these sizes: for each replica of this process, for each part of its rows.
  struct Bound {
    std::vector<Part> parts;
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
  void choose_devices();
  void check_alone(const Node& collective) const;
  void check_options() const;
  void find_updates();
  void check_validation() const;
  void add_leaves();

  // stepping.cpp
  bool training() const { return *options_.mode == Mode::training; }
  /// Whether the tree waits for run() to give it values.
  bool placeholders() const;
  void need_data(std::string_view what) const;
  int64_t steps() const;
  Rows rows_at(int64_t step) const;
  Bound& plan_for(const Rows& rows, bool inference);
  std::shared_ptr<const PlanData> compile_for(const Rows& rows, BatchShard share, int parts,
                                              bool inference) const;
  Bound& resolve(StepPlans& plans, const Rows& rows, bool inference);
  void prepare_epoch();
  /// Whether the rows of a batch are shared out among plans.
  bool shares() const { return replicas_->all() > 1 || options_.accumulate > 1; }
  /// The plan of the first replica here that ends a step.
  const Part& main_part(const Bound& bound) const {
    return bound.parts[bound.parts.size() / replicas_->size() - 1];
  }
  /// How many parts each replica's rows are taken in.
  int parts(bool inference) const { return inference || !training() ? 1 : options_.accumulate; }
  /// For each replica of this process and each part of its rows: the feeds as it sees them.
  std::vector<Readers> make_readers(const std::vector<std::shared_ptr<Feed>>& feeds, int parts);
  std::shared_ptr<const Feed> share_of(const std::shared_ptr<Feed>& feed, BatchShard share);
  void start(std::vector<Readers>& readers) const;
  void train_step(std::vector<Readers>& readers, StepInfo& info);
  /// Brings the next batch of a feed to a plan.
  void load(Runtime& runtime, Session& session, size_t feed, data::Prefetcher& reader, Profiler* profiler);
  /// Runs the plans of a batch, after `load(replica, part)` has brought each its rows.
  void run_plans(Bound& bound, FunctionRef<void(size_t, size_t)> load);
  /// Adds the losses of the steps since the last call to the epoch's, and returns the newest; 0 if there are
  /// none.
  double settle_losses();
  void forget_losses();
  /// The tree's value after a step: a copy, on the device of the tree.
  Tensor result_of(const Bound& bound) const;
  void check_shown(const Bound& bound) const;
  Tensor at_home(const Tensor& result) const {
    return home_ == result.device() ? result.clone() : result.to(home_);
  }
  /// The rows of the tree's value that all replicas have, put together.
  Tensor gather_rows(const Bound& bound) const;

  // training_loop.cpp
  History run_epochs(const ExecuteOptions& options);
  bool run_epoch(Loop& loop);
  bool validate(Loop& loop, double& loss);
  void finish_epoch();
  bool listens(Event event) const;
  void tell(Event event, const StepInfo& info);
  void call(const std::function<void(const StepInfo&)>& listener, const StepInfo& info) const;
  /// `told`: what callbacks have been told of just now.
  bool ends(Loop& loop, std::optional<Event> told = {});

  /// A number that changes with every epoch of every feed.
  int64_t epochs_of_feeds() const;
  /// Begins the epoch anew if somebody has reset a feed.
  void follow_feeds();
  /// What has been done of the epoch is forgotten, or has been noted.
  void begin_epoch();

  // resume.cpp
  /// In all processes: until the first has written it.
  void wait_for_checkpoint() const;
  /// Throws FileError if other processes have found none, or another one.
  void agree_on_checkpoint(const CheckpointFile& file, const std::exception_ptr& error) const;
  Checkpoint state_of_run() const;
  std::vector<FeedState> feed_states() const;
  void check_fit(const CheckpointFile& file) const;

  // processes.cpp: what the processes of a job do together
  const std::shared_ptr<Communicator>& world() const { return replicas_->world(); }
  bool is_first_process() const;
  /// Throws unless all have grown the same tree; then they begin with the first one's leaves.
  void meet_processes();
  struct Wishes {
    bool interrupt = false;  ///< a signal came
    bool stop = false;       ///< a callback called stop()
  };
  /// What anybody wishes, of which all hear after the same step; `exactly`: after this one.
  Wishes agree(Wishes wishes, bool exactly);
  /// Whether there are listeners to each event, here or in any other process.
  std::array<bool, 3> agree_on_listening() const;
  /// All processes draw what the first one would.
  void share_generator() const;
  /// Brings states that other processes keep up to date in the tree: all processes must call it.
  void gather_states();
  /// Lets the other processes know what is thrown here.
  void tell_processes(std::exception_ptr error) const noexcept;

  Variable root_;
  StepTree tree_;
  ExecutorOptions options_;
  std::optional<LossScale> loss_scale_;  // training in float16
  std::vector<std::shared_ptr<Feed>> feeds_;
  std::map<std::tuple<const Feed*, int, int>, std::shared_ptr<const Feed>> feed_shares_;
  std::vector<Variable> leaf_list_;  // in the order of writing
  std::unique_ptr<Replicas> replicas_;
  std::shared_ptr<const StateOwners> owners_;  // if replicas share out the states
  bool states_apart_ = false;       // whether other processes have written theirs since they were gathered
  Device home_;                     // of the tree
  std::vector<int64_t> unsettled_;  // the samples of steps whose losses are not in `run_` yet
  std::vector<double> losses_;
  std::map<std::pair<bool, Rows>, Bound> plans_;
  StepPlans training_plans_, validation_plans_;
  Rows rows_;  // of the step at hand
  const Bound* last_ = nullptr;
  Tensor last_value_;
  std::exception_ptr value_error_;  // why there is no last value
  std::deque<std::pair<Event, std::function<void(const StepInfo&)>>> listeners_;
  bool stopped_ = false;
  Profiler profiler_;
  bool busy_ = false;

  RunState run_;
  int64_t run_epochs_ = 0;  // epochs_of_feeds() that `run_.step` belongs to
  bool resumed_ = false;    // the next execute() goes on with `run_`
  std::vector<Readers> step_readers_;
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
