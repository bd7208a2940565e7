// Plans for tests of the cost model, and machines whose times are easily computed by hand.
#pragma once
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <numeric>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "plan_steps.h"
#include "testing.h"

namespace espalier::testing {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr int64_t rows = 16, inputs = 8, hidden = 32, outputs = 4;

/// A network with two products forward and three backward.
inline Variable small_loss() {
  seed(5);
  const data::Distributor feed({randn({64, inputs}), randn({64, outputs})}, {.batch_size = rows});
  const auto [x, y] = feed.get_output_graphs<2>();
  return nn::MeanSquared()(nn::Dense(outputs)(tanh(nn::Dense(hidden)(x))), y);
}

/// A plan that trains it by Adam, gradients side by side, for a device of that type.
inline PlanData trained(DeviceType device = DeviceType::cuda, const std::vector<std::string>& without = {}) {
  const Variable loss = small_loss();
  const auto gradients = new_parameter_gradients(loss);
  return *compile(step_of({loss}, optim::Adam(0.1).build(gradients), gradients), {},
                  {.device = device, .without = without});
}

/// The same plan for several replicas, which exchange all gradients at once.
inline PlanData replicated(int replicas, const std::vector<std::string>& without = {}) {
  PlanData plan = trained(DeviceType::cuda, without);
  const BucketPlan& bucket = plan.memory.buckets.at(0);
  uint32_t wait = bucket.node + 1;
  while (plan.graph.nodes[wait].tag != Tag::update || !plan.memory.runs[wait]) ++wait;
  plan.replication = Replication{.replicas = replicas, .batch_rows = rows * replicas};
  plan.memory.gradient_wait = wait;
  return plan;
}

/// Every kernel takes one second, and the network carries one byte per second.
inline CostInputs seconds_and_bytes() {
  return {.hardware = {.name = "clock",
                       .float32 = inf,
                       .float64 = inf,
                       .tf32 = inf,
                       .half = inf,
                       .bandwidth = inf,
                       .launch = 1},
          .network = {.name = "wire", .levels = {{.name = "wire", .bandwidth = 1}}}};
}

/// The nodes of a plan that run, in order.
inline std::vector<uint32_t> running(const PlanData& plan) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (plan.memory.runs[i]) nodes.push_back(i);
  return nodes;
}

/// The costs of what runs in a plan for one value.
inline std::vector<internal::NodeCost> costs_of(const Variable& value) {
  const auto plan = compile({.value = value}, {}, {.inference = true, .without = {}});
  const std::vector<internal::NodeCost> all = internal::node_costs(*plan);
  std::vector<internal::NodeCost> costs;
  for (const uint32_t i : running(*plan)) costs.push_back(all[i]);
  return costs;
}

inline double product_flops(const PlanData& plan) {
  double flops = 0;
  for (const internal::NodeCost& cost : internal::node_costs(plan)) flops += cost.product_flops;
  return flops;
}

inline void check_close(double value, double expected) { BOOST_CHECK_CLOSE_FRACTION(value, expected, 1e-12); }

}  // namespace espalier::testing
