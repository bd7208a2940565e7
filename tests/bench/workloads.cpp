#include "workloads.h"

#include <memory>

#include "gpt_task.h"
#include "mlp_task.h"
#include "nets.h"
#include "pointwise_task.h"
namespace esp = espalier;

namespace workloads {

namespace {

constexpr esp::data::DistributorOptions batches_of(int64_t size) {
  return {.batch_size = size, .shuffle = true, .drop_remainder = true};
}

Frozen train(const esp::Variable& loss, const esp::optim::Optimizer& optimizer, const Without& without,
             int64_t steps) {
  auto executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer, .without = without});
  return {executor, [executor] { executor.execute({.epochs = 1, .progress = false}); }, steps};
}

// One step of a tree that has no feed: an epoch of its own.
void step_without_feed(const esp::Executor& executor) {
  try {
    executor.step();
  } catch (const esp::EndOfData&) {
    executor.step();
  }
}

// Keeps gradients and trains nothing.
struct KeepGradients : esp::optim::Rule {
  std::string_view name() const override { return "keep_gradients"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    step.assign(step.state("gradient"), step.gradient());
  }
};

}  // namespace

Frozen mlp(const Without& without) {
  esp::seed(1);
  const esp::data::Distributor feed(
      {esp::randn({task::kRows, task::kInputs}), esp::randn({task::kRows, task::kOutputs})},
      batches_of(task::kBatch));
  auto [x, y] = feed.get_output_graphs<2>();
  return train(esp::nn::MeanSquared()(nets::Mlp()(x), y), esp::optim::Sgd(task::kLearningRate), without,
               task::kRows / task::kBatch);
}

Frozen inference(const Without& without) {
  esp::seed(1);
  const auto executor = nets::Mlp()(esp::placeholder("x", {1, task::kInputs}))
                            .get_executor({.mode = esp::Mode::inference, .without = without});
  const esp::Tensor x = esp::randn({1, task::kInputs});
  return {executor, [executor, x] { (void)executor.run({{"x", x}}); }, 1};
}

Frozen pointwise_forward(const Without& without, int64_t elements) {
  esp::seed(1);
  const esp::Shape shape{elements ? elements : pointwise_task::kElements};
  const esp::Variable out = pointwise_task::expression(
      esp::variable(esp::randn(shape)), esp::variable(esp::randn(shape)), esp::variable(esp::randn(shape)));
  const auto executor =
      esp::slice(out, 0, 0, 1).get_executor({.mode = esp::Mode::inference, .without = without});
  return {executor, [executor] { step_without_feed(executor); }, 1};
}

Frozen pointwise_backward(const Without& without, int64_t elements) {
  esp::seed(1);
  const esp::Shape shape{elements ? elements : pointwise_task::kElements};
  const esp::Variable loss = esp::sum(pointwise_task::expression(esp::parameter(esp::randn(shape), "a"),
                                                                 esp::parameter(esp::randn(shape), "b"),
                                                                 esp::parameter(esp::randn(shape), "c")));
  const esp::optim::Optimizer keep(std::make_shared<KeepGradients>(), {});
  const auto executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = keep, .without = without});
  return {executor, [executor] { step_without_feed(executor); }, 1};
}

Frozen gpt(const Without& without) {
  using namespace gpt_task;
  esp::seed(1);
  const esp::Shape shape{kRows, kTokens, kWidth};
  const esp::data::Distributor feed({esp::randn(shape), esp::randn(shape)}, batches_of(kBatch));
  auto [x, y] = feed.get_output_graphs<2>();
  return train(esp::nn::MeanSquared()(nets::GptBlock()(x), y), esp::optim::Adam(kLearningRate), without,
               kSteps);
}

Frozen small(const Without& without) {
  constexpr int64_t rows = 1437, pixels = 64, hidden = 128, classes = 10, batch = 64;
  esp::seed(1);
  const esp::Tensor labels = esp::cast(double{classes} * esp::rand({rows}), esp::int64).value();
  const esp::data::Distributor feed({esp::rand({rows, pixels}), labels}, batches_of(batch));
  auto [x, y] = feed.get_output_graphs<2>();
  esp::nn::Sequential network{esp::nn::Dense(hidden), esp::nn::Relu(), esp::nn::Dropout(0.2),
                              esp::nn::Dense(classes)};
  // Slow learning: what has been learned by heart has gradients of 0, and moments that decay to subnormals.
  return train(esp::nn::SoftmaxCrossEntropy()(network(x), y), esp::optim::Adam(1e-6), without, rows / batch);
}

}  // namespace workloads
