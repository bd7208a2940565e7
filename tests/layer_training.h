// Training a layer in a small network, eagerly, in a plan and on replicas.
#pragma once
#include <functional>

#include "espalier/nn/dense.h"
#include "espalier/nn/layer.h"
#include "espalier/nn/losses.h"
#include "replica_programs.h"

namespace espalier::testing {

/// A weight before the layer, and a mean of squares after it. `shape` is that of one example.
struct LayerTraining {
  using Call = std::function<Variable(const Variable&)>;

  LayerTraining(const Call& layer, const Shape& shape, int64_t batch = 4)
      : feed({inputs(shape)}, {.batch_size = batch}) {
    const Variable x = feed.get_output_graphs()[0] * w;
    loss = mean(square(layer(x) - 0.3));
  }
  static Tensor inputs(const Shape& shape) {
    Dims all{11};
    for (const int64_t size : shape) all.push_back(size);
    return numbers(Shape(all), -1, 1, 4);
  }
  data::Distributor feed;
  Variable w = parameter(tensor(1.5, float64), "w");
  Variable loss;
};

/// Losses and leaves after each step of two epochs, the last batches of which are short.
inline Trace train_layer(const std::function<LayerTraining::Call(nn::Module&)>& make, const Shape& shape,
                         bool eagerly, std::vector<Device> devices = {}) {
  seed(3);
  nn::Module module;
  LayerTraining network(make(module), shape);
  const optim::Sgd sgd(0.05);
  Trace trace;
  const auto add = [&](double loss) {
    trace.push_back(tensor(loss, float64));
    trace.push_back(network.w.value().clone());
    for (const auto& list : {module.parameters(), module.buffers()})
      for (const auto& [path, leaf] : list) trace.push_back(leaf.value().clone());
  };
  if (eagerly) {
    for (int epoch = 0; epoch < 2; ++epoch, network.feed.reset())
      for (int step = 0; step < 3; ++step) {
        const double loss = network.loss.forward().item();
        network.loss.update(sgd);
        add(loss);
      }
    return trace;
  }
  const Executor executor = network.loss.get_executor({.optimizer = sgd, .devices = std::move(devices)});
  executor.on(Event::step_finish, [&](const StepInfo& info) { add(info.loss); });
  (void)executor.execute({.epochs = 2, .progress = false});
  return trace;
}

using Places = std::vector<std::vector<Device>>;

/// The largest difference of plans from eager training on the CPU: of one device, and of replicas.
inline double training_differences_of(const std::function<LayerTraining::Call(nn::Module&)>& call,
                                      const Shape& shape, const Places& places = {{}, cpus(2), cpus(3)}) {
  const Trace eager = train_layer(call, shape, true);
  double largest = 0;
  for (const auto& devices : places)
    largest = std::max(largest, difference_of(train_layer(call, shape, false, devices), eager));
  return largest;
}

template <class L>
double training_differences(const std::function<L()>& make, const Shape& shape,
                            const Places& places = {{}, cpus(2), cpus(3)}) {
  const auto call = [&](nn::Module& module) -> LayerTraining::Call {
    const L layer = module.add("layer", make());
    return [layer](const Variable& x) { return layer(x); };
  };
  return training_differences_of(call, shape, places);
}

}  // namespace espalier::testing
