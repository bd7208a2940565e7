// Executor: a tree trained flat. It owns the plan and runs epochs.
#pragma once
#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/callback.h"
#include "espalier/executor/export_options.h"
#include "espalier/executor/history.h"
#include "espalier/executor/launch.h"
#include "espalier/executor/metric.h"
#include "espalier/executor/plan.h"
#include "espalier/executor/precision.h"
#include "espalier/executor/profile.h"
#include "espalier/executor/value_info.h"
#include "espalier/optim/optimizer.h"

namespace espalier {

enum class Mode : uint8_t {
  inference,  ///< forward; dropout keeps everything
  training,   ///< forward, backward and update
};

/// How several replicas train together.
struct ReplicaOptions {
  /// In a program that mpirun began: all its processes train together, each with as many replicas. All must
  /// then make the same executor and ask the same of it. Without, this process is alone.
  bool distributed = true;
  /// Statistics of a batch that its rows read, as in batch normalization, are taken over the rows of each
  /// replica. Nothing is exchanged for them, and the result is not quite that of one device. A loss over
  /// pairs of rows, or another that is neither a mean nor a sum over rows, is the mean of the replicas' own.
  bool local_statistics = false;
  /// Training: each parameter has one replica that alone keeps its states (momentum and the like) and
  /// computes its next value (ZeRO stage 1). Where gradients are sent at once (`bucket_bytes`) it alone
  /// receives the sum, if the optimizer allows that. The results are the same. After a step, this process
  /// does not have the states that another process keeps, until `execute` returns, `step` throws EndOfData or
  /// `checkpoint` is called: reading one in between throws Error.
  bool shard_states = false;
  /// Replicas that are not threads of one process send gradients as soon as so many bytes of them are
  /// complete, while the rest is computed. 0: all at once, in the end.
  int64_t bucket_bytes = int64_t{1} << 22;
};

struct ExecutorOptions {
  /// Unless it is given: training if there is an optimizer, or the tree holds updates; else inference.
  std::optional<Mode> mode = {};
  /// Training: what updates the parameters. Without it, the updates that the tree holds already
  /// (Variable::update).
  std::optional<optim::Optimizer> optimizer = {};
  /// Where to run; empty is where the tree's parameters are. A tree on the CPU can be run on a GPU: its
  /// parameters are copied there and, when they are read, back.
  ///
  /// On several devices each has a replica of the plan and takes its share of the rows of every batch; all
  /// train as one device would, to rounding. {cpu(0), cpu(1)} are two replicas with half of the cores each,
  /// {gpu(0), gpu(0)} two on one card. The tree's value must be made of the rows of the batch one by one, or
  /// be a mean or a sum over them; else UnsupportedError, naming what is not.
  std::vector<Device> devices = {};
  /// How these devices, and in a job those of all processes, train together.
  ReplicaOptions replicas = {};
  /// Training: take the rows of each batch in so many parts, one after the other, with one update for all:
  /// less memory for the same result.
  int accumulate = 1;
  /// How a GPU is given the kernels of a step.
  Launch launch = Launch::graph;
  /// Training: the loss over this feed, in inference, after each epoch. Its columns stand for those of the
  /// tree's feed.
  std::optional<data::Distributor> validation = {};
  /// In what matrix products are computed, and what is safe between them. Parameters, optimizer and losses
  /// stay as they are. Training in float16 needs `optimizer`: its gradients are those of a scaled loss.
  Precision precision = Precision::float32;
  /// What the plan computes beside the tree's value, by names: `Executor::output` has them after a step, and
  /// the History the means of those that are scalars, and Metrics over all samples. On replicas each must be
  /// made of the rows of the batch one by one, or be a mean or a sum over them; a mean or sum must be real.
  std::vector<std::pair<std::string, PlanOutput>> outputs = {};
  /// Passes to leave out, by the names in the plan; "in_place" too.
  std::vector<std::string> without = {};
  /// The most bytes that intermediate values and the batch may take; 0: any. Values are computed again when
  /// the plan would need more. Throws OutOfMemory if that is not enough.
  int64_t memory_budget = 0;
  /// Keep the graph before and after each pass in the plan's report.
  bool dump = false;
  /// How many plans for batches of different sizes are kept, at least 1; that which was not used for longest
  /// goes first. Each has memory of its own; in training, whole and short batches need one each.
  int plan_cache = 64;
  /// Inference on one device: numbers of rows that plans are made for. A batch that `run` is given is filled
  /// up to the next of them by copies of its last row, which the results do not have; a larger one has a plan
  /// of its own. Each row of a result must depend on its row of the batch alone, else UnsupportedError,
  /// naming what does not. Empty: each number of rows has its plan.
  std::vector<int64_t> buckets = {};
  /// Measure which library is fastest for each matrix product when a plan is made for batches of new sizes,
  /// which takes some milliseconds for each. Without, `run`, `step` and `execute` take what was measured
  /// before, else the first suggestion; `warm_up` measures in any case.
  bool tune = true;
  /// For debugging: a step whose loss, value or written leaves would not be finite throws NumericError, which
  /// names the op and the source line that made the NaN or infinity, forward or backward, and leaves
  /// parameters and states as they were before the step. Each kernel then runs alone, without fusion, and its
  /// results are read: a step takes several times as long. Without it, nothing is looked at.
  bool find_nan = false;
};

/// What Variable::plan_for is asked for. What both have means the same as in ExecutorOptions.
struct PlanOptions {
  std::optional<Mode> mode = {};
  std::optional<optim::Optimizer> optimizer = {};
  /// The kind of devices, and how many there are. Each has a replica; the plan is that of the first one.
  DeviceType device = DeviceType::cuda;
  int devices = 1;
  /// `distributed` has no effect: the plan counts `devices` alone.
  ReplicaOptions replicas = {};
  int accumulate = 1;
  Precision precision = Precision::float32;
  std::vector<std::string> without = {};
  int64_t memory_budget = 0;
  bool dump = false;
};

/// Values for placeholders, by their names.
using Feeds = std::vector<std::pair<std::string, Tensor>>;

struct ExecuteOptions {
  /// After `resume`, those that are done already count.
  int64_t epochs = 1;
  /// A bar on standard error, where that is a terminal. Unless it is given: as the Defaults say, which is
  /// yes.
  std::optional<bool> progress = {};
  /// A folder for checkpoints (see Executor::checkpoint), made if it is not there. Empty: none.
  std::filesystem::path checkpoint = {};
  /// Leave one after so many steps; 0: after each epoch, when its callbacks have been called. There is one
  /// more when the run ends, also by stop() or SIGINT, but not when something is thrown.
  int64_t checkpoint_every = 0;
  /// The first SIGINT ends the run after its step, with a checkpoint if there is a folder for them, and the
  /// host's handler is back from then on. Unless it is given: as the Defaults say, which is yes.
  std::optional<bool> handle_interrupt = {};
  /// Training: throw NumericError when the loss of a step is NaN. Losses are read some steps late, unless
  /// something needs them: the message names the step, and no checkpoint is written from it on. Parameters
  /// are as after the last step; to have those before it would take a copy of all of them in each step.
  /// Training in float16 skips such steps, and throws when 48 of them have brought the factor of the loss to
  /// its least.
  bool stop_on_nan = true;
  /// Values of the placeholders of a tree that a Distributor feeds, the same in all steps and in validation.
  Feeds feeds = {};
};

/// Shapes of such values.
using FeedShapes = std::vector<std::pair<std::string, Shape>>;

struct SaveOptions {
  /// Names of the columns of the tree's Distributors, in their order, under which a program that loads the
  /// file can give them values. Empty: column_0, column_1, …
  std::vector<std::string> columns = {};
};

/// What a step has computed.
struct StepValues {
  Tensor value = {};                           ///< of the tree
  std::map<std::string, Tensor> outputs = {};  ///< ExecutorOptions::outputs by their names
};

class Executor;
struct LoadOptions;
namespace internal {
/// `gather_gradients`: training keeps the gradients of all parameters side by side, as it does on replicas,
/// on one device, too.
Executor make_executor(const Variable& root, const ExecutorOptions& options, bool gather_gradients);
}  // namespace internal

/// A handle; copies share the plan. One thread at a time may be inside; `run` of an inference executor on one
/// device, and `stop`, are for several. What another thread calls meanwhile throws Error. The tree's
/// parameters can be used eagerly before, between and after runs. A callback that holds a copy of the
/// Executor keeps it alive: let it hold a reference.
class Executor {
 public:
  using Where = std::source_location;

  /// An empty handle, to be assigned to: everything else throws Error.
  Executor() = default;
  Executor(const Executor&) = default;  // and no moves: what is moved from stays valid
  Executor& operator=(const Executor&) = default;

  /// Runs epochs over the tree's feeds. A tree without a feed has one step in an epoch. Whatever a step or a
  /// callback throws leaves by this call, std::bad_alloc and std::length_error as OutOfMemory; parameters are
  /// then as after the last whole step.
  History execute(const ExecuteOptions& options = {}, Where where = Where::current()) const;
  /// The next step of the epoch, for loops of one's own. Throws EndOfData after the last, unless the tree
  /// has no feed; the step after that begins the next epoch. `feeds` are the values of the placeholders
  /// beside the feeds, all of them in each step; replicas take their rows of them, and a scalar whole. Throws
  /// DataError, TypeError or ShapeError.
  StepInfo step(const Feeds& feeds = {}, Where where = Where::current()) const;
  /// One step on these values. The first size may differ from that of the placeholder, and so may those that
  /// are -1 there. Returns the tree's value. Inference on one device: several threads may be inside at once.
  Tensor run(const Feeds& feeds, Where where = Where::current()) const;
  /// The same, with all ExecutorOptions::outputs of this step, also where several threads are inside. Throws
  /// UnsupportedError also where `output` does.
  StepValues run_outputs(const Feeds& feeds, Where where = Where::current()) const;
  /// Makes the plan for values of these shapes, and measures its products, before `run` needs it; for
  /// inference, for so many threads that will be inside `run` at once. For inference on one CPU it also takes
  /// memory from the system, computes what is made of parameters alone, and packs weights. Throws what `run`
  /// throws, and Error unless there is at least one thread.
  void warm_up(const FeedShapes& shapes, int threads = 1, Where where = Where::current()) const;
  /// The tree's value after the last step. Throws Error before the first one, and if several threads have
  /// called `run`.
  Tensor value(Where where = Where::current()) const;
  /// One of `ExecutorOptions::outputs` after the last step. Throws Error for another name, and before the
  /// first step; UnsupportedError for rows that are not in the order of the batch on replicas, and for rows
  /// with `accumulate`.
  Tensor output(std::string_view name, Where where = Where::current()) const;

  /// By what the loss is multiplied while it is differentiated: with Precision::float16 a number that adapts
  /// itself, else 1.
  double loss_scale(Where where = Where::current()) const;

  /// Calls `f` at each such event, in the order of registration.
  void on(Event event, std::function<void(const StepInfo&)> f, Where where = Where::current()) const;
  template <std::invocable F>
  void on(Event event, F f, Where where = Where::current()) const {
    on(event, std::function<void(const StepInfo&)>([f = std::move(f)](const StepInfo&) { (void)f(); }),
       where);
  }
  /// Registers a callback, of a class that derives from Callback, among these functions. Some are in
  /// executor/kit/: EarlyStopping, BestModel, TensorBoard and others. Throws Error for a null pointer.
  void use(const AnyCallback& callback, Where where = Where::current()) const;
  /// Called from a callback: `execute` returns after this step or epoch. Unless it is after `resume`, the
  /// next `execute` does not go on with what is left of the epoch, but begins the next one, in its order.
  void stop(Where where = Where::current()) const;

  /// Adds a checkpoint to a folder: parameters, states and settings of the optimizer, this thread's random
  /// state, the epoch of each feed and the position in it, and the History so far. The last two are kept; a
  /// process that dies meanwhile leaves the one before. May be called from callbacks. Throws FileError.
  void checkpoint(const std::filesystem::path& folder, Where where = Where::current()) const;
  /// Restores the last checkpoint of a folder, in the same program. The next `execute` or `step` of this
  /// thread continues that run as if it had never stopped; on the same machine, with as many threads, all
  /// bits are the same. Throws Error when a callback of this executor calls it, and FileError if there is no
  /// checkpoint, if it is damaged, or if it does not fit this program. Nothing has changed then.
  void resume(const std::filesystem::path& folder, Where where = Where::current()) const;

  /// Writes the step as one file of C99 that needs nothing but math.h and allocates nothing: inference as
  /// `name`_run, training with its optimizer as `name`_step, for batches of one size, with the values that
  /// parameters and states have now. The file says at its top what it takes of memory and what its functions
  /// are. Throws UnsupportedError, with the op and the user's line, for what has no C code: other types than
  /// float32, float64, int32, int64 and bool, several devices, 16-bit precision, and ops that
  /// docs/reference.md does not list; Error for options that make no sense; FileError.
  ExportedSizes export_c(const std::filesystem::path& file, const ExportOptions& options = {},
                         Where where = Where::current()) const;
  /// Writes a file from which load_executor makes this executor again, in a program without the code that
  /// built the tree: the tree before the passes, with all leaves and, of training, the updates and the state
  /// of the run. A whole file is written or none. May be called from callbacks. Throws FileError, and
  /// UnsupportedError, naming the op and its line, for what a file cannot hold: custom ops that are not
  /// registered (register_custom_op), ops of communication, Metrics of functions that are not registered
  /// (register_metric_function).
  void save(const std::filesystem::path& path, const SaveOptions& options = {},
            Where where = Where::current()) const;

  /// Whether its steps train.
  Mode mode(Where where = Where::current()) const;
  /// The placeholders of the tree, for which `run` needs values.
  std::vector<ValueInfo> inputs(Where where = Where::current()) const;
  /// The tree's value, named "value", and ExecutorOptions::outputs; of whole batches, with -1 for sizes that
  /// follow open axes.
  std::vector<ValueInfo> outputs(Where where = Where::current()) const;
  /// All leaves but constants, in the order in which they were written.
  std::vector<LeafInfo> leaves(Where where = Where::current()) const;

  /// The plan for whole batches. If a placeholder has open axes: the one that was used last, or Error before
  /// the first.
  Plan plan(Where where = Where::current()) const;

  /// Records the times of the next steps, whichever of `execute`, `step` and `run` takes them: each kernel,
  /// the waiting for data, the whole. They go into `report`, and as a trace for ui.perfetto.dev into `trace`,
  /// which is written when the steps are done, when an `execute` ends before that, or when the executor goes.
  /// FileError if it cannot be, from this call or from the one that takes the last step; that step counts.
  void profile(const std::filesystem::path& trace, const ProfileOptions& options = {},
               Where where = Where::current()) const;
  /// The same without a file.
  void profile(const ProfileOptions& options = {}, Where where = Where::current()) const;
  /// Writes a page of HTML, complete in one file, that explains a plan: its graph, steps, memory and passes,
  /// with the times that `profile` has gathered of it. It is the plan for whole batches, or, if only others
  /// have been profiled, the one that ran most. FileError.
  void report(const std::filesystem::path& html, Where where = Where::current()) const;

 private:
  class Impl;
  friend Executor internal::make_executor(const Variable& root, const ExecutorOptions& options,
                                          bool gather_gradients);
  friend Executor load_executor(const std::filesystem::path& path, const LoadOptions& options, Where where);
  explicit Executor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace espalier
