// Loading what Executor::save has written.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/executor/executor.h"

namespace espalier {

/// What a loaded executor is to do. What ExecutorOptions has, too, means the same there; what is not given is
/// as it was saved.
struct LoadOptions {
  /// Training can be loaded for inference; inference, with an `optimizer`, for training.
  std::optional<Mode> mode = {};
  /// For the feeds of the tree that have data, in their order: columns of the same types, and of the same
  /// shapes but for the rows of a batch. Empty: each column of such a feed is a placeholder, whose name
  /// SaveOptions::columns gave, so that `run` takes steps, of training as well.
  std::vector<data::Distributor> data = {};
  std::optional<data::Distributor> validation = {};
  /// In place of the updates in the file: new updates of all parameters. Its states begin anew.
  std::optional<optim::Optimizer> optimizer = {};
  /// Empty: the CPU.
  std::vector<Device> devices = {};
  ReplicaOptions replicas = {};
  std::optional<int> accumulate = {};
  Launch launch = Launch::graph;
  /// Training can be loaded in float16 only if it was saved in float16, or with an `optimizer`.
  std::optional<Precision> precision = {};
  /// For inference: which outputs are computed, instead of all, by their names; "value" is the tree's. Then
  /// `run` returns "value" if it is among them, else the first, which no Metric can be, and the executor has
  /// no inputs that none of them reads.
  std::vector<std::string> outputs = {};
  std::vector<std::string> without = {};
  int64_t memory_budget = 0;
  bool dump = false;
  int plan_cache = 64;
  std::vector<int64_t> buckets = {};
  bool tune = true;
  bool find_nan = false;
};

/// What shows in a tree.
struct PlanFeedInfo {
  std::string name;
  bool placeholder = true;         ///< else a Distributor
  std::vector<ValueInfo> columns;  ///< what it shows, in the batches of the program that saved it
};
struct PlanLeafInfo {
  std::string kind;  ///< "parameter", "variable", "state" or "constant"
  ValueInfo value;   ///< constants have no name
};

/// What a plan file says of itself.
struct PlanFileInfo {
  std::string version;  ///< of the Espalier that wrote it
  Mode mode = Mode::inference;
  std::vector<PlanFeedInfo> feeds;
  std::vector<std::string> outputs;  ///< the names of those beside the tree's value
  std::vector<PlanLeafInfo> leaves;
  std::map<std::string, int64_t> operations;  ///< how many nodes each op has, in the steps of scans as well
  int64_t bytes = 0;                          ///< of the file
};

/// Reads what a file says of itself, and makes nothing of it. Throws FileError, as load_executor does.
PlanFileInfo plan_file_info(const std::filesystem::path& path,
                            std::source_location where = std::source_location::current());

/// The executor of a file, without the code that built its tree: passes run again, for this machine and these
/// options. Values of leaves are pages of the file until they are written, so that several processes share
/// them; the file may be replaced meanwhile, but not cut.
///
/// What a loaded executor of training does next is what the saved one would have done, bit by bit on the same
/// machine with as many threads, given the same data: leaves, states of the optimizer, this thread's random
/// numbers, the History and the position in the epoch are those of the file, which was saved within a run if
/// a callback saved it. If `data` has another number of batches, its epoch begins anew.
///
/// Throws FileError for a file that is damaged, of another format or of a newer version, or that has a custom
/// op which this program has not registered (register_custom_op), and what get_executor throws.
Executor load_executor(const std::filesystem::path& path, const LoadOptions& options = {},
                       std::source_location where = std::source_location::current());

}  // namespace espalier
