// What steps of a plan would cost on a machine, without that machine.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/dtype.h"
#include "espalier/executor/hardware.h"

namespace espalier {

struct PlanData;

/// What a prediction is made of beside the plan.
struct CostInputs {
  Hardware hardware = {};
  Network network = {};
  bool tf32 = false;  ///< products in float32 may drop digits
  /// How much of the communication that the order of events lets run beside computing does so: 1 all of it,
  /// 0 none, since both want the same device.
  double overlap = 1;
  /// Each replica keeps its part of the optimizer's states, and updates its part of the parameters (ZeRO-1).
  /// A plan that was made so is taken so in any case.
  bool sharded_states = false;
};

/// One step on each of so many replicas.
struct Prediction {
  int64_t replicas = 1;
  double rows = 0;           ///< of the batch of one replica
  double step = 0;           ///< seconds; `compute` and `exposed` together
  double compute = 0;        ///< seconds in the kernels of one replica
  double communication = 0;  ///< seconds in which gradients are on their way
  double exposed = 0;        ///< seconds of these in which nothing is computed
  int64_t memory = 0;        ///< bytes on one device: parameters, states, all intermediate values
  bool fits = true;          ///< whether the device has so many, as far as that is known
  double samples = 0;        ///< rows per second, all replicas together
  double efficiency = 1;     ///< samples per second and replica, over those of one replica alone
};

enum class Scaling : uint8_t {
  weak,    ///< each replica has as many rows as in the plan
  strong,  ///< all replicas together have the rows of the plan's global batch
};

namespace presets {

CostInputs h100_nvlink();                         ///< of H100s: nodes of 8 by NVLink, InfiniBand between
CostInputs h200_nvlink();                         ///< the same of H200s
CostInputs ethernet_100g(Hardware gpu = h100());  ///< such nodes, each with one port of 100 Gb/s Ethernet
CostInputs ethernet_25g(Hardware gpu = h100());   ///< with 25 Gb/s
/// These four.
std::vector<CostInputs> all();

}  // namespace presets

/// What one kernel of a plan does.
struct NodeCost {
  double product_flops = 0;             ///< FLOPs of a matrix product: 2·m·n·k
  DType product_type = DType::float32;  ///< of its operands
  double flops = 0;        ///< of all else: one for each element that is computed, or read and written
  double bytes = 0;        ///< read and written, which get fewer with the rows of the batch
  double fixed_bytes = 0;  ///< read and written, however many rows there are: parameters, their gradients
  bool rows = false;       ///< whether its FLOPs get fewer with the rows
};

/// What each node of a plan does; nothing where it needs no kernel.
std::vector<NodeCost> node_costs(const PlanData& plan);

/// Seconds for a kernel with this share of the plan's rows: max(FLOPs / rate, bytes / bandwidth) + launch
/// (the roofline of Williams, Waterman, Patterson, 2009).
double kernel_seconds(const NodeCost& cost, const CostInputs& inputs, double share = 1);

/// One all-reduce: its values are complete at `ready` and take `seconds` once they begin.
struct Transfer {
  double ready, seconds;
};
/// When the last of these is done: one after the other, in order, none before it is ready.
double end_of_transfers(const std::vector<Transfer>& transfers);

/// The plan as it is, on the replicas it was made for. Throws Error for inputs that make no sense.
Prediction predict(const PlanData& plan, const CostInputs& inputs);
/// On 1, 2, 4, … replicas, as far as `up_to`; in strong scaling only as long as each has a row. Throws Error
/// for inputs that make no sense, and if the plan was not made for replicas, which says what they would
/// exchange.
std::vector<Prediction> scaling(const PlanData& plan, const CostInputs& inputs, Scaling how = Scaling::weak,
                                int64_t up_to = 4096);

}  // namespace espalier
