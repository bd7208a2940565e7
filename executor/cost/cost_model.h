// The cost model: predicts the time and memory of a plan's steps on a machine that need not be present.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/dtype.h"
#include "espalier/executor/cost/hardware.h"

namespace espalier {

struct PlanData;

/// The inputs of a prediction beside the plan.
struct CostInputs {
  Hardware hardware = {};
  Network network = {};
  bool tf32 = false;  ///< products in float32 run in TF32
  /// The fraction that overlaps with computation of the communication whose dependencies allow it: 1 for all,
  /// less if both compete for the device.
  double overlap = 1;
  /// Each replica keeps a shard of the optimizer's states and updates a shard of the parameters (ZeRO-1).
  /// Implied by a plan with sharded states.
  bool sharded_states = false;
};

/// The prediction of one step on a number of replicas.
struct Prediction {
  int64_t replicas = 1;
  double rows = 0;           ///< in the batch of one replica
  double step = 0;           ///< seconds: `compute` plus `exposed`
  double compute = 0;        ///< seconds in the kernels of one replica
  double communication = 0;  ///< seconds of communication
  double exposed = 0;        ///< seconds of these without computation
  int64_t memory = 0;        ///< bytes on one device: parameters, states, all intermediate values
  bool fits = true;          ///< the device has enough memory; true if its memory is unknown
  double samples = 0;        ///< rows per second, all replicas together
  double efficiency = 1;     ///< samples per second and replica, relative to a single replica
};

enum class Scaling : uint8_t {
  weak,    ///< each replica has as many rows as in the plan
  strong,  ///< the replicas divide the plan's global batch
};

namespace presets {

CostInputs h100_nvlink();                         ///< H100s: nodes of 8 with NVLink, InfiniBand between nodes
CostInputs h200_nvlink();                         ///< the same with H200s
CostInputs ethernet_100g(Hardware gpu = h100());  ///< such nodes, each with one port of 100 Gb/s Ethernet
CostInputs ethernet_25g(Hardware gpu = h100());   ///< with 25 Gb/s
/// All four.
std::vector<CostInputs> all();

}  // namespace presets

namespace internal {

/// The work of one kernel of a plan.
struct NodeCost {
  double product_flops = 0;             ///< FLOPs of a matrix product: 2·m·n·k
  DType product_type = DType::float32;  ///< of its operands
  double flops = 0;        ///< other FLOPs: one for each element that is computed, or read and written
  double bytes = 0;        ///< read and written, in proportion to the rows of the batch
  double fixed_bytes = 0;  ///< read and written, independent of the rows: parameters, their gradients
  bool rows = false;       ///< FLOPs are in proportion to the rows
};

/// The work of each node of a plan; zero for nodes without a kernel.
std::vector<NodeCost> node_costs(const PlanData& plan);

/// Seconds of a kernel with this fraction of the plan's rows: max(FLOPs / rate, bytes / bandwidth) + launch
/// (the roofline of Williams, Waterman, Patterson, 2009).
double kernel_seconds(const NodeCost& cost, const CostInputs& inputs, double share = 1);

/// One all-reduce: it can start at `ready` and takes `seconds`.
struct Transfer {
  double ready, seconds;
};
/// The end of the last one, if they run in order, one at a time.
double end_of_transfers(const std::vector<Transfer>& transfers);

/// Predicts a step on the plan's own replicas. Throws Error for invalid inputs.
Prediction predict(const PlanData& plan, const CostInputs& inputs);
/// Predicts a step on 1, 2, 4, … replicas, up to `up_to`; in strong scaling only while each has a row. Throws
/// Error for invalid inputs, and for a plan without replicas, which has no exchange of gradients.
std::vector<Prediction> scaling(const PlanData& plan, const CostInputs& inputs, Scaling how = Scaling::weak,
                                int64_t up_to = 4096);

}  // namespace internal

}  // namespace espalier
