#include "workloads.h"

#include <espalier/core/node.h>

#include <memory>
#include <optional>

#include "nets.h"
namespace esp = espalier;

namespace workloads {

namespace {

constexpr int64_t kRunOnGpu = 64;  // steps, for trees without a feed

constexpr esp::data::DistributorOptions batches_of(int64_t size) {
  return {.batch_size = size, .shuffle = true, .drop_remainder = true};
}

esp::ExecutorOptions options(const Target& target,
                             const std::optional<esp::optim::Optimizer>& optimizer = {}) {
  return {.mode = optimizer ? esp::Mode::training : esp::Mode::inference,
          .optimizer = optimizer,
          .devices = target.devices,
          .launch = target.launch,
          .precision = target.precision,
          .without = target.without};
}

esp::Executor executor_of(const esp::Variable& root, const Target& target,
                          const std::optional<esp::optim::Optimizer>& optimizer) {
  return esp::internal::make_executor(root, options(target, optimizer), target.gather_gradients);
}

Frozen train(const esp::Variable& loss, const esp::optim::Optimizer& optimizer, const Target& target,
             int64_t steps) {
  const auto executor = executor_of(loss, target, optimizer);
  return {executor, [executor] { executor.execute({.epochs = 1, .progress = false}); }, steps};
}

// A number for each of many steps. An epoch of a tree without a feed has a single step, so the overhead of an
// epoch would be timed with it.
esp::Variable number_per_step() {
  const esp::data::Distributor feed({esp::ones({kRunOnGpu})}, batches_of(1));
  return esp::reshape(feed.get_output_graphs()[0], {});
}

// Runs a tree without a feed; on a GPU, adds a feed.
Frozen without_feed(const esp::Variable& root, const std::optional<esp::optim::Optimizer>& optimizer,
                    const Target& target) {
  if (!target.devices.empty()) {
    const esp::Variable with_number = root + number_per_step();
    const auto executor = executor_of(with_number, target, optimizer);
    return {executor, [executor] { executor.execute({.epochs = 1, .progress = false}); }, kRunOnGpu};
  }
  const auto executor = executor_of(root, target, optimizer);
  const auto step = [executor] {
    try {
      executor.step();
    } catch (const esp::EndOfData&) {  // an epoch has one step
      executor.step();
    }
  };
  return {executor, step, 1};
}

// Keeps gradients in states and updates no parameter.
struct KeepGradients : esp::optim::UpdateRule {
  std::string_view name() const override { return "keep_gradients"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    step.assign(step.state("gradient"), step.gradient());
  }
};

// Also updates parameters other than the one it is called for.
struct UpdateGiven : esp::optim::UpdateRule {
  esp::optim::Adam adam{1e-3};
  std::vector<std::pair<esp::Variable, esp::Variable>> gradients;  // of each parameter

  std::string_view name() const override { return "update_given"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    step.assign(step.parameter(), step.parameter() - 1e-3 * step.gradient());
    for (const esp::Variable& assignment : adam.build(gradients)) {
      const auto& inputs = assignment.node()->inputs;  // a leaf and its next value
      step.assign(inputs[0].variable(), inputs[1].variable());
    }
  }
};

}  // namespace

Frozen mlp(const Target& target, int64_t rows, int64_t batch) {
  esp::seed(1);
  const esp::data::Distributor feed({esp::randn({rows, task::kInputs}), esp::randn({rows, task::kOutputs})},
                                    batches_of(batch));
  auto [x, y] = feed.get_output_graphs<2>();
  return train(esp::nn::MeanSquared()(nets::Mlp()(x), y), esp::optim::Sgd(task::kLearningRate), target,
               rows / batch);
}

Frozen inference(const Target& target) {
  esp::seed(1);
  const auto executor = nets::Mlp()(esp::placeholder("x", {1, task::kInputs})).get_executor(options(target));
  const esp::Tensor x = esp::randn({1, task::kInputs});
  return {executor, [executor, x] { (void)executor.run({{"x", x}}); }, 1};
}

Frozen pointwise_forward(const Target& target, int64_t elements) {
  esp::seed(1);
  const auto leaf = [&] { return esp::variable(esp::randn({elements})); };
  const esp::Variable out = pointwise_task::expression(leaf(), leaf(), leaf());
  return without_feed(esp::slice(out, 0, 0, 1), {}, target);
}

Frozen pointwise_backward(const Target& target, int64_t elements) {
  esp::seed(1);
  const auto leaf = [&](const char* name) { return esp::parameter(esp::randn({elements}), name); };
  const esp::Variable loss = esp::sum(pointwise_task::expression(leaf("a"), leaf("b"), leaf("c")));
  return without_feed(loss, esp::optim::Optimizer(std::make_shared<KeepGradients>(), {}), target);
}

Frozen gpt(const Target& target, const gpt_task::Size& size) {
  esp::seed(1);
  const esp::Shape shape{size.rows, size.tokens, size.width};
  const esp::data::Distributor feed({esp::randn(shape), esp::randn(shape)}, batches_of(size.batch));
  auto [x, y] = feed.get_output_graphs<2>();
  return train(esp::nn::MeanSquared()(nets::GptBlock(size)(x), y), esp::optim::Adam(gpt_task::kLearningRate),
               target, size.steps());
}

Frozen small(const Target& target) {
  constexpr int64_t rows = 1437, pixels = 64, hidden = 128, classes = 10, batch = 64;
  esp::seed(1);
  const esp::Tensor labels = esp::cast(double{classes} * esp::rand({rows}), esp::int64).value();
  const esp::data::Distributor feed({esp::rand({rows, pixels}), labels}, batches_of(batch));
  auto [x, y] = feed.get_output_graphs<2>();
  esp::nn::Sequential network{esp::nn::Dense(hidden), esp::nn::Relu(), esp::nn::Dropout(0.2),
                              esp::nn::Dense(classes)};
  // A low learning rate: after overfitting, gradients would be 0, and moments would decay to subnormals.
  return train(esp::nn::SoftmaxCrossEntropy()(network(x), y), esp::optim::Adam(1e-6), target, rows / batch);
}

Frozen optimizer(const Target& target, const std::vector<int64_t>& sizes) {
  esp::seed(1);
  const auto rule = std::make_shared<UpdateGiven>();
  for (const int64_t size : sizes)
    rule->gradients.emplace_back(esp::parameter(esp::randn({size}), "given"),
                                 esp::state(esp::randn({size}), "gradient"));
  const esp::Variable number = esp::parameter(esp::zeros({}), "number");
  return without_feed(esp::square(number), esp::optim::Optimizer(rule, {}), target);
}

}  // namespace workloads
