// Plans on a GPU, real or emulated: they train as on the CPU, with every way of launching kernels.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <utility>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/residual.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

constexpr int64_t rows = 23;  // not a multiple of the batch: the last is short
const esp::data::DistributorOptions batches_of_5{.batch_size = 5, .shuffle = true, .seed = 3};

const esp::Tensor& samples() {
  static const esp::Tensor x = numbers({rows, 4}).to(esp::float32);
  return x;
}
const esp::Tensor& labels() {
  static const esp::Tensor y = (numbers({rows}, 0, 3, 1)).to(esp::int64);
  return y;
}

/// The same rows from a dataset that does not expose its memory.
struct Streamed : esp::data::Dataset {
  esp::data::TensorDataset kept{{samples(), labels()}};
  int64_t rows() const override { return kept.rows(); }
  std::vector<esp::Spec> specs() const override { return kept.specs(); }
  void read(std::span<const int64_t> which, std::span<esp::Tensor> outputs) const override {
    kept.read(which, outputs);
  }
};

struct Training {
  nn::Sequential model{nn::Dense(8), nn::Relu(), nn::Dropout(0.25), nn::Dense(3)};
  esp::data::Distributor feed;
  esp::Variable prediction, loss;
  explicit Training(bool streamed = false)
      : feed(streamed ? esp::data::Distributor(std::make_shared<Streamed>(), batches_of_5)
                      : esp::data::Distributor({samples(), labels()}, batches_of_5)) {
    esp::seed(11);
    const auto [x, y] = feed.get_output_graphs<2>();
    prediction = model(x);
    loss = nn::SoftmaxCrossEntropy()(prediction, y);
  }
  esp::Executor executor(const std::vector<esp::Device>& devices, esp::Launch launch = esp::Launch::graph,
                         const optim::Optimizer& optimizer = optim::Adam({.lr = 0.01})) const {
    return loss.get_executor(
        {.mode = esp::Mode::training, .optimizer = optimizer, .devices = devices, .launch = launch});
  }
  double difference_from(const Training& other) const {
    double largest = 0;
    const auto mine = model.parameters(), theirs = other.model.parameters();
    for (size_t i = 0; i < mine.size(); ++i)
      largest = std::max(largest, difference(mine[i].second.value(), theirs[i].second.value()));
    return largest;
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// `times` copies of parameters of many sizes, without layers: a step consists of the loss and updates.
struct Parameters {
  std::vector<esp::Variable> all;
  esp::Variable loss;
  explicit Parameters(int times) {
    for (int t = 0; t < times; ++t)
      for (const esp::Shape& shape :
           {esp::Shape{1}, esp::Shape{3}, esp::Shape{64}, esp::Shape{1000}, esp::Shape{}, esp::Shape{7, 9},
            esp::Shape{1, 1}, esp::Shape{50, 50}, esp::Shape{2}, esp::Shape{4096}, esp::Shape{3, 1, 5},
            esp::Shape{2049}}) {
        all.push_back(esp::parameter(numbers(shape, -1, 1, all.size()).to(esp::float32), "p"));
        const esp::Variable part = esp::sum(esp::square(all.back() - 0.25));
        loss = loss.defined() ? loss + part : part;
      }
  }
};

/// The number of nodes of the CUDA graph of a step; 0 on other devices.
int graph_nodes(const esp::Executor& executor) {
  const std::string plan = executor.plan().str();
  const size_t at = plan.find("one CUDA graph of ");
  if (at == std::string::npos) return 0;
  return std::stoi(plan.substr(at + 18));
}

struct Updates {
  optim::Optimizer optimizer;
  int kernels;  ///< at most: one for the rule, one for scalar parameters, which the loss sums
};
/// New optimizers for each call, since they count the steps of their schedules.
std::vector<Updates> all_updates() {
  return {
      {optim::Sgd(0.1), 2},
      {optim::Sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}), 2},
      {optim::Sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true}), 2},
      {optim::Sgd({.lr = 0.1, .clip_norm = 1}), 2},  // the kernel of the loss also sums the norm
      {optim::Adam({.lr = 0.01}), 2},
      {optim::Adam({.lr = 0.01, .weight_decay = 0.01, .clip_value = 0.5}), 2},
      {optim::Adam({.lr = 0.01, .clip_norm = 1}), 2},
      {optim::Adam({.lr = 0.01, .schedule = optim::exponential(0.9)}), 4},  // the rate, and the step
      {optim::AdamW({.lr = 0.01, .clip_norm = 1, .schedule = optim::cosine({.steps = 6})}), 5},
      {optim::RmsProp({.lr = 0.01}), 2},
      {optim::RmsProp({.lr = 0.01, .momentum = 0.5, .clip_norm = 1}), 2},
      {optim::Adagrad({.lr = 0.01}), 2},
      {optim::Adagrad({.lr = 0.01, .schedule = optim::step_decay({.every = 2, .factor = 0.5})}), 4},
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_executor)

BOOST_AUTO_TEST_CASE(updates_of_many_parameters_are_as_many_kernels_as_those_of_few) {
  constexpr int around = 2;  // the kernels of the loss and of recording it
  const auto train = [](const Parameters& p, const optim::Optimizer& optimizer, const esp::Device device) {
    const esp::Executor executor =
        p.loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer, .devices = {device}});
    executor.execute({.epochs = 5, .progress = false});
    return graph_nodes(executor);
  };
  for (const esp::Device gpu : gpus_to_test())
    for (size_t o = 0; o < all_updates().size(); ++o)
      for (const int times : {1, 3}) {
        const Updates by = all_updates()[o];
        BOOST_TEST_INFO_SCOPE("optimizer " << o << ", " << by.optimizer.name() << ", " << times << " times");
        const Parameters here(times), there(times);
        train(here, all_updates()[o].optimizer, esp::cpu());
        BOOST_TEST(train(there, by.optimizer, gpu) - around <= by.kernels);
        for (size_t i = 0; i < here.all.size(); ++i)
          BOOST_TEST(difference(here.all[i].value(), there.all[i].value()) < 1e-5,
                     "parameter " << i << " of " << here.all[i].shape().str());
      }
}

BOOST_AUTO_TEST_CASE(every_way_to_launch_trains_as_the_cpu_does) {
  const Training on_cpu;
  const esp::History expected = on_cpu.executor({esp::cpu()}).execute({.epochs = 3, .progress = false});
  for (const esp::Device gpu : gpus_to_test())
    for (const bool streamed : {false, true})
      for (const esp::Launch launch : {esp::Launch::graph, esp::Launch::segments, esp::Launch::stream}) {
        const Training there(streamed);
        const esp::Executor executor = there.executor({gpu}, launch);
        const esp::History history = executor.execute({.epochs = 3, .progress = false});
        for (size_t i = 0; i < 3; ++i)
          BOOST_TEST(std::abs(history.epochs[i].loss_mean - expected.epochs[i].loss_mean) < 1e-5);
        BOOST_TEST(there.difference_from(on_cpu) < 1e-5);
        const std::string plan = executor.plan().str();
        BOOST_TEST(has(plan, launch == esp::Launch::graph      ? "launched as one CUDA graph of"
                             : launch == esp::Launch::segments ? "CUDA graphs of"
                                                               : "launched as single kernels"),
                   plan);
      }
}

BOOST_AUTO_TEST_CASE(callbacks_see_each_loss_and_what_was_trained) {
  const auto run = [](const esp::Device device) {
    const Training t;
    const esp::Executor executor = t.executor({device});
    std::vector<double> seen;
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
      seen.push_back(info.loss);
      seen.push_back(esp::sum(t.model.parameters()[0].second).item());
      if (info.step == 2)  // the plan continues with these values
        esp::set_value(t.model.parameters()[0].second, esp::full({8, 4}, 0.25));
    });
    executor.execute({.epochs = 2, .progress = false});
    return seen;
  };
  const std::vector<double> expected = run(esp::cpu());
  for (const esp::Device gpu : gpus_to_test()) {
    const std::vector<double> seen = run(gpu);
    BOOST_REQUIRE(seen.size() == expected.size());
    for (size_t i = 0; i < seen.size(); ++i) BOOST_TEST(std::abs(seen[i] - expected[i]) < 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(a_tree_that_lives_there) {
  const Training on_cpu;
  on_cpu.executor({esp::cpu()}).execute({.epochs = 2, .progress = false});
  for (const esp::Device gpu : gpus_to_test()) {
    const Training there;
    (void)there.loss.value();  // creates the parameters
    esp::seed(11);
    Training moved;
    moved.model.to(gpu);
    const esp::Executor executor = moved.executor({});
    executor.execute({.epochs = 2, .progress = false});
    for (const auto& [name, p] : moved.model.parameters()) BOOST_TEST(p.value().device() == gpu);
    BOOST_TEST(moved.difference_from(on_cpu) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(inference_gives_results_where_the_tree_is) {
  for (const esp::Device gpu : gpus_to_test()) {
    esp::seed(5);
    nn::Sequential model{nn::Dense(8), nn::Tanh(), nn::Dense(3)};
    const esp::Variable x = esp::placeholder("x", {6, 4});
    const esp::Variable y = model(x);
    const esp::Executor there = y.get_executor({.mode = esp::Mode::inference, .devices = {gpu}});
    const esp::Executor here = y.get_executor({.mode = esp::Mode::inference});
    for (int64_t n = 1; n <= 6; ++n) {
      const esp::Tensor batch = samples().slice(0, 0, n);
      const esp::Tensor result = there.run({{"x", batch}});
      BOOST_TEST(result.device() == esp::cpu());
      BOOST_TEST(difference(here.run({{"x", batch}}), result) < 1e-6);
      BOOST_TEST(difference(there.run({{"x", batch}}), there.value()) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_asks_for_no_memory) {
  for (const esp::Device gpu : gpus_to_test()) {
    const Training t;
    const esp::Executor executor = t.executor({gpu});
    executor.execute({.epochs = 2, .progress = false});
    const int64_t before = esp::memory_stats(gpu).allocations;
    executor.execute({.epochs = 3, .progress = false});
    BOOST_TEST(esp::memory_stats(gpu).allocations == before);
  }
}

BOOST_AUTO_TEST_CASE(what_runs_on_the_host_stands_between_graphs) {
  const esp::CustomOp twice = esp::custom_op(
      {.name = "twice",
       .forward =
           [](const std::vector<esp::Tensor>& in) {
             esp::Tensor out = in[0].clone();
             for (float& v : out.span<float>()) v *= 2;
             return out;
           },
       .gradient =
           [](const esp::CustomGradient& g) { return std::vector<esp::Variable>{g.output_gradient * 2}; },
       .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  const auto train = [&](const esp::Device device, std::string& plan) {
    esp::seed(2);
    nn::Dense layer(3);
    const esp::data::Distributor feed({samples(), labels()}, batches_of_5);
    const auto [x, y] = feed.get_output_graphs<2>();
    const esp::Variable loss = nn::SoftmaxCrossEntropy()(twice({layer(x)}), y);
    const esp::Executor executor =
        loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .devices = {device}});
    const double last = executor.execute({.epochs = 2, .progress = false}).epochs.back().loss_mean;
    plan = executor.plan().str();
    return last;
  };
  std::string plan;
  const double expected = train(esp::cpu(), plan);
  for (const esp::Device gpu : gpus_to_test()) {
    BOOST_TEST(std::abs(train(gpu, plan) - expected) < 1e-5);
    BOOST_TEST(has(plan, "around 1 calls on the host"), plan);
  }
}

BOOST_AUTO_TEST_CASE(operations_of_ones_own_get_tensors_where_they_want_them) {
  for (const esp::Device gpu : gpus_to_test())
    for (const bool there : {false, true}) {
      esp::Device seen;
      const esp::CustomOp same = esp::custom_op({.name = "same",
                                                 .forward =
                                                     [&](const std::vector<esp::Tensor>& in) {
                                                       seen = in[0].device();
                                                       return in[0].clone();
                                                     },
                                                 .takes_device_tensors = there});
      const esp::Variable x = esp::Variable(samples()).to(gpu);
      const esp::Tensor y = same({x}).value();
      BOOST_TEST(seen == (there ? gpu : esp::cpu()));
      BOOST_TEST(y.device() == gpu);
      BOOST_TEST(difference(samples(), y) == 0);
    }
}

BOOST_AUTO_TEST_CASE(labels_outside_their_range_are_index_errors) {
  for (const esp::Device gpu : gpus_to_test()) {
    const esp::Tensor x = esp::ones({4, 3});
    for (const int label : {7, 5, 7}) {  // each is reported, once
      const esp::Variable eager =
          esp::softmax_cross_entropy(esp::Variable(x.to(gpu)), esp::tensor({0, 2, label, 1}).to(gpu));
      BOOST_CHECK_EXCEPTION((void)eager.item(), esp::IndexError, [&](const esp::IndexError& e) {
        return has(e.what(), std::to_string(label)) && has(e.what(), "3");
      });
      BOOST_TEST(std::isfinite(esp::sum(esp::Variable(x.to(gpu))).item()));
    }

    nn::Dense layer(3);
    const esp::data::Distributor feed({x, esp::tensor({0, 2, 7, 1})}, {.batch_size = 2});
    const auto [in, label] = feed.get_output_graphs<2>();
    const esp::Variable loss = nn::SoftmaxCrossEntropy()(layer(in), label);
    const esp::Executor executor =
        loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .devices = {gpu}});
    BOOST_CHECK_THROW(executor.execute({.progress = false}), esp::IndexError);
  }
}

BOOST_AUTO_TEST_CASE(checkpoints_go_on_bit_by_bit) {
  for (const esp::Device gpu : gpus_to_test()) {
    const TemporaryFolder folder;
    const Training straight;
    straight.executor({gpu}).execute({.epochs = 4, .progress = false});
    {
      const Training first;
      const esp::Executor executor = first.executor({gpu});
      int steps = 0;
      executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
        if (++steps != 8) return;
        executor.checkpoint(folder.path());
        executor.stop();
      });
      executor.execute({.epochs = 4, .progress = false});
    }
    const Training second;
    const esp::Executor executor = second.executor({gpu});
    executor.resume(folder.path());
    executor.execute({.epochs = 4, .progress = false});
    BOOST_TEST(second.difference_from(straight) == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_mlp_is_few_kernels) {
  for (const esp::Device gpu : gpus_to_test()) {
    esp::seed(1);
    nn::Sequential model{nn::Dense(32), nn::Relu(), nn::Dense(10)};
    const esp::data::Distributor feed(
        {numbers({64, 20}).to(esp::float32), numbers({64, 10}).to(esp::float32)}, {.batch_size = 16});
    const auto [x, y] = feed.get_output_graphs<2>();
    const esp::Variable loss = nn::MeanSquared()(model(x), y);
    const esp::Executor executor =
        loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .devices = {gpu}});
    executor.execute({.epochs = 2, .progress = false});
    const int nodes = graph_nodes(executor);
    BOOST_TEST((nodes > 0 && nodes <= 11), executor.plan().str());  // one of them for a ReLU that keeps NaN
  }
}

BOOST_AUTO_TEST_CASE(relu_keeps_nan_in_plans_too) {
  for (const esp::Device gpu : gpus_to_test()) {
    esp::Tensor batch = samples().clone();
    batch.span<float>()[1] = std::nanf("");
    const esp::Variable w = esp::parameter(numbers({4, 8}, -1, 1, 1).to(esp::float32), "w"),
                        b = esp::parameter(numbers({8}, -1, 1, 2).to(esp::float32), "b");
    const esp::Variable x = esp::placeholder("x", {rows, 4});
    const esp::Variable y = esp::relu(esp::matmul(x, w) + b);
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .devices = {gpu}});
    const esp::Tensor planned = executor.run({{"x", batch}});
    const esp::Tensor eager =
        esp::relu(esp::matmul(batch.to(gpu), w.value().to(gpu)) + b.value().to(gpu)).value().to(esp::cpu());
    for (int64_t k = 0; k < 8; ++k) {
      BOOST_TEST(std::isnan(eager.at<float>({0, k})));
      BOOST_TEST(std::isnan(planned.at<float>({0, k})));
    }
    BOOST_TEST(difference(planned.slice(0, 1, rows), eager.slice(0, 1, rows)) < 1e-5);
  }
}

/// Of 16 bits, a GPU has the channels last.
BOOST_AUTO_TEST_CASE(convolutions_train_in_16_bits_as_on_the_cpu) {
  const auto train = [](esp::Device device, esp::Precision precision) {
    esp::seed(1);
    nn::Sequential net{nn::Conv2d(4, {.kernel = 3, .padding = 1}),
                       nn::BatchNorm(),
                       nn::Relu(),
                       nn::Residual(nn::Conv2d(4, {.kernel = 3, .padding = 1}), nn::BatchNorm()),
                       nn::MaxPool2d(esp::MaxPoolOptions{.kernel = 2}),
                       nn::Conv2d(3, {.kernel = 2}),
                       nn::Relu(),
                       nn::AvgPool2d(esp::AveragePoolOptions{.kernel = 2})};
    const esp::Tensor x = numbers({6, 2, 6, 6}).to(esp::float32);
    const esp::Variable loss = esp::mean(esp::square(net(esp::Variable(x.to(device))) - 1.0));
    net.to(device);
    const esp::Executor executor =
        loss.get_executor({.optimizer = optim::Sgd(0.05), .devices = {device}, .precision = precision});
    std::vector<double> losses;
    for (int i = 0; i < 5; ++i) losses.push_back(executor.step().loss);
    return losses;
  };
  for (const esp::Device gpu : gpus_to_test())
    for (const esp::Precision precision : {esp::Precision::bfloat16, esp::Precision::float16}) {
      const auto expected = train(esp::cpu(), precision), given = train(gpu, precision);
      for (size_t i = 0; i < given.size(); ++i)
        BOOST_TEST(std::abs(given[i] - expected[i]) < 0.03 * std::abs(expected[i]));
    }
}

/// In the call of a convolution, where the library has that.
BOOST_AUTO_TEST_CASE(biases_and_relu_behind_convolutions) {
  esp::seed(2);
  nn::Conv2d first(4, {.kernel = 3, .padding = 1}), second(4, {.kernel = 3, .padding = 1});
  esp::Tensor images = numbers({2, 3, 6, 5}, -1, 1, 3).to(esp::float32);
  const esp::Variable x = esp::placeholder("x", images.shape()), hidden = esp::relu(first(x));
  const esp::Variable results[] = {second(hidden), second(hidden) + hidden,
                                   esp::relu(second(hidden) + hidden)};
  for (const nn::Conv2d& layer : {first, second})
    esp::set_value(layer.parameter("bias"), numbers({4}, -1, 1, 5).to(esp::float32));
  const auto run = [&](const esp::Variable& y, esp::Device device, esp::Precision precision,
                       std::vector<std::string> without = {}) {
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference,
                                                   .devices = {device},
                                                   .precision = precision,
                                                   .without = std::move(without)});
    (void)executor.run({{"x", images}});
    return executor.run({{"x", images}}).to(esp::float32);  // launched as a graph
  };
  for (const esp::Device gpu : gpus_to_test()) {
    for (const esp::Variable& y : results) {
      const esp::Tensor expected = run(y, esp::cpu(), esp::Precision::float32);
      BOOST_TEST(difference(run(y, gpu, esp::Precision::float32), expected) < 1e-5);
      BOOST_TEST(difference(run(y, gpu, esp::Precision::float16), expected) < 0.01);
      BOOST_TEST(difference(run(y, gpu, esp::Precision::bfloat16), expected) < 0.1);
    }
    const float number = std::exchange(images.at<float>({1, 2, 3, 4}), std::nanf(""));
    const esp::Tensor fused = run(results[2], gpu, esp::Precision::float32),
                      apart = run(results[2], gpu, esp::Precision::float32, {"fuse_convolution"});
    for (size_t i = 0; i < fused.span<float>().size(); ++i)
      BOOST_TEST(std::isnan(fused.span<float>()[i]) == std::isnan(apart.span<float>()[i]));
    images.at<float>({1, 2, 3, 4}) = number;
  }
}

BOOST_AUTO_TEST_SUITE_END()
