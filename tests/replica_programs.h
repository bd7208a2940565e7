// Programs that train on any number of replicas, for tests that compare them with one device.
#pragma once
#include <vector>

#include "espalier/core/custom_op.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "fuzz_tree.h"
#include "training_runs.h"

namespace espalier::testing {

/// The devices cpu:0, cpu:1, …, one for each replica.
inline std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(cpu(i));
  return devices;
}

/// One device, two and three replicas on the CPU, and on a GPU one and two.
inline std::vector<std::vector<Device>> replica_places() {
  std::vector<std::vector<Device>> places{{}, cpus(2), cpus(3)};
  for (const Device& gpu : gpus_to_test()) places.insert(places.end(), {{gpu}, {gpu, gpu}});
  return places;
}

struct NetworkOptions {
  uint32_t optimizer = 7;
  int64_t batch = 8;  // of 29 rows
  int accumulate = 1;
  std::vector<Device> devices = {};
  bool distributed = true;
  Launch launch = Launch::graph;
  bool shard_states = false;
  int64_t bucket_bytes = int64_t{1} << 22;
  bool host_op = false;  ///< in the forward and in the backward pass
};

/// x, by an op that computes on the host of every device.
inline Variable through_host(const Variable& x) {
  return custom_op(
      {.name = "through_host",
       .forward = [](const std::vector<Tensor>& in) { return in[0].clone(); },
       .row_by_row = true,
       .gradient = [](const CustomGradient& g) { return Variables{through_host(g.output_gradient)}; },
       .infer = [](const std::vector<Spec>& in) { return in[0]; }})({x});
}

/// A classifier in float64 with a shared weight, dropout in two places (also on a transposed value), and a
/// penalty that does not depend on the batch.
struct TestNetwork {
  explicit TestNetwork(const NetworkOptions& options)
      : feed({numbers({29, 6}, -1, 1, 4), labels()},
             {.batch_size = options.batch, .shuffle = true, .seed = 9}) {
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable w = parameter(numbers({6, 6}, -1, 1, 1), "w"), b = parameter(numbers({6}, -1, 1, 2), "b"),
                   out = parameter(numbers({6, 5}, -1, 1, 3), "out");
    parameters = {w, b, out};
    Variable h = dropout(tanh(matmul(x, w) + b), 0.4);
    h = transpose(dropout(transpose(tanh(matmul(h, w))), 0.3));  // the rows are the second axis there
    if (options.host_op) h = through_host(h);
    loss = softmax_cross_entropy(matmul(h, out), y) + sum(square(w)) * 1e-3;
  }
  static Tensor labels() {
    Tensor labels({29}, int64);
    for (int64_t i = 0; i < 29; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = i * 7 % 5;
    return labels;
  }
  Trace values() const {
    Trace trace;
    for (const Variable& p : parameters) trace.push_back(p.value().to(cpu()).clone());
    return trace;
  }

  data::Distributor feed;
  Variables parameters;
  Variable loss;
};

inline Trace train_network(const NetworkOptions& options) {
  seed(17);
  const TestNetwork network(options);
  const Executor executor = network.loss.get_executor({.mode = Mode::training,
                                                       .optimizer = optimizer_of(options.optimizer),
                                                       .devices = options.devices,
                                                       .replicas = {.distributed = options.distributed,
                                                                    .shard_states = options.shard_states,
                                                                    .bucket_bytes = options.bucket_bytes},
                                                       .accumulate = options.accumulate,
                                                       .launch = options.launch});
  Trace trace;
  executor.on(Event::step_finish, [&](const StepInfo& info) {
    trace.push_back(tensor(info.loss, float64));
    trace.push_back(executor.value().to(cpu()));
  });
  (void)executor.execute({.epochs = 2, .progress = false});
  for (const Tensor& value : network.values()) trace.push_back(value);
  return trace;
}

inline Trace train_fuzz_tree(uint32_t which, const std::vector<Device>& devices, bool distributed = true,
                             bool shard_states = false) {
  seed(which);
  FuzzTree tree(which, which % 4 == 0);
  const Executor executor =
      tree.root.get_executor({.mode = Mode::training,
                              .optimizer = optimizer_of(which),
                              .devices = devices,
                              .replicas = {.distributed = distributed, .shard_states = shard_states}});
  Trace trace;
  executor.on(Event::step_finish, [&](const StepInfo& info) {
    trace.push_back(tensor(info.loss, float64));
    trace.push_back(executor.value());
  });
  for (int epoch = 0; epoch < 2; ++epoch) {
    (void)executor.execute({.progress = false});
    tree.disturb();
  }
  for (const Variable& p : tree.parameters) trace.push_back(p.value().clone());
  return trace;
}

}  // namespace espalier::testing
