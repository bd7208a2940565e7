// Schedule: which waiting nodes are computed together, in which order, and where their operands are.
#pragma once
#include <memory>
#include <optional>

#include "espalier/core/deferred/batch.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/deferred/waiting_graph.h"

namespace espalier {

/// An output that a batch reads, of a batch before it or an external one.
struct ScheduledSource {
  bool external;
  uint32_t index;     ///< of the batch, or of the external Variable
  uint32_t output;    ///< of the batch
  bool flat = false;  ///< its first two axes are one
  friend bool operator==(const ScheduledSource&, const ScheduledSource&) = default;
};

/// An operand of a batch.
struct ScheduledInput {
  enum class Form : uint8_t {
    whole,     ///< the source as it is
    row,       ///< one row of it
    range,     ///< rows in steps: a view
    gathered,  ///< rows of several sources, or out of order: a copy
  };
  Form form = Form::whole;
  bool shared = false;  ///< one operand for all nodes
  SmallVector<ScheduledSource, 1> sources = {};
  int64_t begin = 0, step = 1, count = 0;  ///< range; `begin` is the row
  int64_t rows_of_one = 0;                 ///< if not 0, so many rows are one row of the operand
  OpPtr stack = nullptr;                   ///< gathered
};

struct ScheduledBatch {
  std::vector<uint32_t> nodes;
  BatchForm form;                     ///< of row, nodes[i] has row i
  std::vector<uint32_t> starts = {};  ///< of rows, where those of nodes[i] begin, and their number
  bool joined = false;  ///< nodes put inputs of one shape side by side: all are rows of one operand
  std::vector<ScheduledInput> inputs = {};
  std::vector<std::pair<uint32_t, uint32_t>> copies =
      {};  ///< nodes of the same operands as a row, and that row
};

struct Schedule {
  WaitingStructure structure;  ///< of the graph
  std::vector<ScheduledBatch> batches;
  std::vector<uint32_t> apart = {};  ///< nodes that share no value only since they were held
};

/// Every node that has not been dropped in one batch, behind those that it reads. Nodes of one kind with the
/// same operands share a value in a batch of that kind, unless handles hold them: gradients with respect to
/// these differ.
Schedule make_schedule(const WaitingGraph& graph, NodeKinds& kinds, BatchPolicy policy);
/// Whether none is held now of the nodes that share a value, and all of those that are apart.
bool fits_held_nodes(const Schedule& schedule, const WaitingGraph& graph);

}  // namespace espalier
