// Programs of modules on each device, eager, deferred and as plans: values, gradients and trained parameters
// are those of eager evaluation on the CPU.
#pragma once
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/executor/executor.h"
#include "espalier/optim/sgd.h"
#include "layer_figures.h"
#include "testing.h"

namespace espalier::testing {

inline Tensor integers(const std::vector<int64_t>& values, const Shape& shape, Device device) {
  return tensor_from(values, shape).to(device);
}
inline Tensor reals(const Shape& shape, Device device, int64_t step = 5) {
  return figure_numbers(shape, step, 13, 8).to(device);
}

/// A program of a module: the outputs that are compared.
struct DeviceCase {
  std::string name;
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<Variables(const nn::Module&, Device)> outputs;
};

template <class Layer>
DeviceCase device_case(std::string name, std::function<Layer()> make,
                       std::function<Variables(const Layer&, Device)> outputs) {
  struct Holder : nn::Module {
    explicit Holder(Layer made) : layer(add("layer", std::move(made))) {}
    Layer layer;
  };
  return {std::move(name), [make] { return std::make_shared<Holder>(make()); },
          [outputs](const nn::Module& module, Device device) {
            return outputs(static_cast<const Holder&>(module).layer, device);
          }};
}

/// A layer that is none: parameters `u` and `w` for a function.
struct Matrices : nn::Module {
  Variable u = add_parameter("u", figure_numbers({3, 4}, 3, 11, 9)),
           w = add_parameter("w", figure_numbers({4, 4}, 5, 11, 9));
};

inline DeviceCase matrices_case(std::string name, std::function<Variables(const Matrices&, Device)> outputs) {
  return {std::move(name), [] { return std::make_shared<Matrices>(); },
          [outputs](const nn::Module& module, Device device) {
            return outputs(static_cast<const Matrices&>(module), device);
          }};
}

enum class By { eager, deferred, plan };

struct DeviceProgram {
  DeviceProgram(const DeviceCase& c, Device device) : c(&c), module(c.make()), device(device) {
    give_figure_values(*module);
    module->to(device);
  }
  Variables outputs() const { return c->outputs(*module, device); }
  /// The weighed sum of the outputs.
  Variable loss(const Variables& outputs) const {
    Variable loss;
    for (const Variable& output : outputs) {
      const Variable part = sum(output * reals(output.shape(), device, 7));
      loss = loss.defined() ? loss + part : part;
    }
    return loss;
  }
  const DeviceCase* c;
  std::shared_ptr<nn::Module> module;
  Device device;
};

/// The outputs, and the gradients of their weighed sum by all parameters; of a plan that sum alone.
inline std::vector<Tensor> results_of(const DeviceCase& c, Device device, By way) {
  const DeviceProgram program(c, device);
  std::optional<Deferred> waits;
  if (way == By::deferred) waits.emplace();
  const Variables outputs = program.outputs();
  const Variable loss = program.loss(outputs);
  std::vector<Tensor> results;
  const auto keep = [&](const Tensor& value) {
    BOOST_TEST(value.device() == device);
    results.push_back(value.to(cpu()));
  };
  if (way == By::plan) {
    keep(loss.get_executor({.mode = Mode::inference}).run({}));
    return results;
  }
  keep(loss.value());
  for (const Variable& output : outputs) keep(output.value());
  for (const auto& [path, p] : parameters_by_name(*program.module)) keep(loss.gradient(p).value());
  return results;
}

/// The parameters after two steps of training, eagerly or by a plan.
inline std::vector<Tensor> trained_parameters(const DeviceCase& c, Device device, By way) {
  const DeviceProgram program(c, device);
  const optim::Sgd sgd(0.05);
  if (way == By::plan) {
    const Executor executor = program.loss(program.outputs()).get_executor({.optimizer = sgd});
    for (int step = 0; step < 2; ++step) (void)executor.step();
  } else {
    for (int step = 0; step < 2; ++step) program.loss(program.outputs()).backward().update(sgd);
  }
  std::vector<Tensor> results;
  for (const auto& [path, p] : parameters_by_name(*program.module)) results.push_back(p.value().to(cpu()));
  return results;
}

inline std::vector<Device> gpus_and_cpu() {
  std::vector<Device> devices = gpus_to_test();
  devices.push_back(cpu());
  return devices;
}

inline void check_alike(const std::vector<Tensor>& expected, const std::vector<Tensor>& results) {
  BOOST_REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    BOOST_TEST(all(isfinite(expected[i])).value().at<bool>({}));  // NaNs would be alike
    BOOST_TEST(difference(expected[i], results[i]) < 1e-10);
  }
}

/// Calls `f(c, device)` for each case on each device.
inline void each_on_devices(const std::vector<DeviceCase>& cases,
                            const std::function<void(const DeviceCase&, Device)>& f) {
  for (const DeviceCase& c : cases)
    for (const Device device : gpus_and_cpu()) BOOST_TEST_CONTEXT(c.name << " on " << device) f(c, device);
}

/// Compares values and gradients of each case, in each way on each device.
inline void check_on_devices(const std::vector<DeviceCase>& cases) {
  each_on_devices(cases, [](const DeviceCase& c, Device device) {
    std::vector<Tensor> expected = results_of(c, cpu(), By::eager);
    for (const By way : {By::eager, By::deferred, By::plan})
      BOOST_TEST_CONTEXT("way " << static_cast<int>(way)) {
        if (way == By::plan) expected.resize(1);
        check_alike(expected, results_of(c, device, way));
      }
  });
}

/// Compares the parameters of each case after two steps of plans on each device.
inline void check_training_on_devices(const std::vector<DeviceCase>& cases) {
  each_on_devices(cases, [](const DeviceCase& c, Device device) {
    check_alike(trained_parameters(c, cpu(), By::eager), trained_parameters(c, device, By::plan));
  });
}

}  // namespace espalier::testing
