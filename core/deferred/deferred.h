// Deferred: nodes wait until a value is needed, and alike ones are computed as one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// In which order waiting nodes are put into batches.
enum class BatchPolicy : uint8_t {
  /// All nodes of one kind that can be computed are a batch. First come kinds that are complete so, then that
  /// whose members are, on average, nearest to the leaves (Neubig, Goldberg and Dyer, "On-the-fly Operation
  /// Batching in Dynamic Computation Graphs", 2017). Or the kinds come in the order of their deepest nodes,
  /// if that makes fewer batches of the whole. That no one order suits all networks was shown by Chen et
  /// al., "ED-Batch", 2023.
  agenda,
  /// Nodes of one depth. Looks, Herreshoff, Hutchins and Norvig, "Deep Learning with Dynamic Computation
  /// Graphs", 2017.
  depth,
};

struct DeferredOptions {
  BatchPolicy policy = BatchPolicy::agenda;
};

/// While one lives, eager nodes that this thread makes wait. When a value is needed (value(), item(),
/// backward(), update(), an assignment of a leaf), all that waits is computed: nodes of one op with the same
/// attributes, inputs of the same shapes and the same parameters are one call of a kernel. So are nodes with
/// different numbers of rows, the first sizes of their shapes, if the op keeps rows apart: pointwise
/// operations, products by a parameter, cells. Gradients are computed by the same batches. Results equal
/// those of eager evaluation to rounding. Errors that depend on values, such as an index out of range, are
/// thrown when the value is needed, with the line of the node; an update or assignment throws such an error
/// once. A Tensor whose elements are written while nodes that read it wait is read as it is then.
///
///     esp::Deferred deferred;
///     std::vector<esp::Variable> losses;
///     for (const Tree& tree : batch) losses.push_back(loss_of(tree));
///     esp::sum(esp::stack(losses)).backward().update(sgd);
///
/// What still waits at its end is computed when it is needed.
class Deferred {
 public:
  explicit Deferred(DeferredOptions options = {});
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

 private:
  bool before_;
  DeferredOptions options_before_;
};

/// What the last evaluation of waiting nodes in this thread has done.
struct EvaluationReport {
  struct Batch {
    std::string op;
    int64_t nodes;                    ///< that it has computed
    int64_t gathered = 0;             ///< inputs whose rows were copied together first
    int64_t kernels = 0;              ///< that it has run, copies included; views run none
    Spec of_one = {};                 ///< the first output of one node
    int64_t bytes = 0;                ///< of the results
    int64_t level = 0;                ///< one more than the highest of the batches that it reads
    std::vector<size_t> reads = {};   ///< batches, by their place in the list
    double seconds = 0;               ///< of this thread; a GPU may compute longer
    std::source_location where = {};  ///< of the first node
  };
  int64_t nodes_computed = 0;   ///< that waited
  int64_t kernels_run = 0;      ///< for these
  bool schedule_known = false;  ///< an evaluation before had the same structure: nothing was planned
  std::vector<Batch> batches;   ///< in the order of their computation

  /// Totals, and for each op its nodes, batches and copies.
  std::string str() const;
  /// Writes a page that draws the batches, in levels, and lists them. Throws FileError.
  void report(const std::filesystem::path& html,
              std::source_location where = std::source_location::current()) const;
};
std::ostream& operator<<(std::ostream& out, const EvaluationReport& report);

/// The report of this thread. It is valid until the next evaluation.
const EvaluationReport& last_evaluation();

}  // namespace espalier
