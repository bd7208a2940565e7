// Convolutions with what follows them in one node: values, and what is in a node.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include "convolution_rows.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/piecewise_activation.h"
#include "espalier/nn/vision/models.h"
#include "espalier/ops/convolution/convolution_primitive.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Variable;

namespace {

int64_t count(const std::string& text, std::string_view word) {
  int64_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}
int64_t nodes(const esp::Executor& executor, const std::string& op) {
  return count(executor.plan().str(), " " + op + "(");
}

esp::Executor inference(const Variable& y, std::vector<std::string> without = {}) {
  return y.get_executor({.mode = esp::Mode::inference, .without = std::move(without)});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(convolution_fusion)

BOOST_AUTO_TEST_CASE(values_are_those_of_single_nodes) {
  for (const ConvolutionRow& row : convolution_rows()) {
    esp::seed(5);
    const Sequential net = network(row);
    const Variable x = esp::placeholder("x", row.x), y = row.tail(net, x);
    const esp::Executor fused = inference(y), apart = inference(y, {"fuse_convolution"});
    BOOST_TEST(nodes(fused, "conv_epilogue") == 1, row.name << "\n" << fused.plan().str());
    BOOST_TEST(nodes(fused, "conv") == 0, row.name);
    BOOST_TEST(nodes(apart, "conv") == 1, row.name);
    for (const uint64_t which : {2, 3}) {
      const esp::Tensor images = floats(row.x, which);
      const Variable expected = apart.run({{"x", images}}).clone();
      BOOST_TEST(largest(Variable(fused.run({{"x", images}})) - expected) < 3e-5 * (1 + largest(expected)),
                 row.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_and_three_axes) {
  esp::seed(6);
  const auto check = [](Sequential net, const esp::Shape& shape) {
    (void)net(floats(shape, 1));
    vary(net);
    net.train(false);
    const Variable x = esp::placeholder("x", shape), y = esp::relu(net(x));
    const esp::Executor fused = inference(y);
    BOOST_TEST(nodes(fused, "conv_epilogue") == 1);
    const esp::Tensor values = floats(shape, 2);
    BOOST_TEST(largest(Variable(fused.run({{"x", values}})) - esp::relu(net(values))) < 3e-5);
  };
  check(Sequential(Conv1d(8, {.kernel = 3, .bias = false}), BatchNorm()), {2, 4, 11});
  check(Sequential(Conv3d(8, {.kernel = 2, .bias = false}), BatchNorm()), {2, 4, 5, 4, 3});
}

BOOST_AUTO_TEST_CASE(both_sides_of_a_shortcut) {
  esp::seed(7);
  const ConvOptions three{.kernel = 3, .stride = 2, .padding = 1, .bias = false},
      one{.kernel = 1, .stride = 2, .bias = false};
  Sequential body(Conv2d(12, three), BatchNorm()), shortcut(Conv2d(12, one), BatchNorm());
  const esp::Tensor images = floats({2, 6, 9, 9}, 1);
  for (Sequential* net : {&body, &shortcut}) {
    (void)(*net)(images);
    vary(*net);
    net->train(false);
  }
  const Variable x = esp::placeholder("x", {2, 6, 9, 9});
  const esp::Executor fused = inference(esp::relu(body(x) + shortcut(x)));
  BOOST_TEST(nodes(fused, "conv_epilogue") == 2, fused.plan().str());
  const Variable expected = esp::relu(body(images) + shortcut(images));
  BOOST_TEST(largest(Variable(fused.run({{"x", images}})) - expected) < 3e-5);
}

/// oneDNN computes few channels by products of columns.
BOOST_AUTO_TEST_CASE(sums_of_convolutions_of_few_channels) {
  const esp::ConvolutionOptions padded{.padding = {{1, 1}}};
  for (const int64_t channels : {1, 2, 3}) {
    const Variable a = esp::parameter(floats({channels, 1, 1}, 1)),
                   b = esp::parameter(floats({channels, 1, 1}, 2));
    const auto net = [&](const Variable& in) {
      return esp::conv(in, a, padded) + esp::conv(esp::tanh(in), b, padded);
    };
    const esp::Executor fused = inference(net(esp::placeholder("x", {2, 1, 5})));
    BOOST_TEST(nodes(fused, "conv_epilogue") == 1, fused.plan().str());
    const esp::Tensor values = floats({2, 1, 5}, 3);
    BOOST_TEST(largest(Variable(fused.run({{"x", values}})) - net(values)) < 1e-5, channels);
  }
}

/// Kernels are packed when leaves have changed: by the user, by eager updates and by another executor.
BOOST_AUTO_TEST_CASE(packed_kernels_follow_the_leaves) {
  esp::seed(8);
  Sequential net(Conv2d(8, {.kernel = 3, .bias = false}), BatchNorm(), Relu());
  const esp::Shape shape{4, 3, 8, 8};
  const esp::Tensor images = floats(shape, 1), targets = floats({4, 8, 6, 6}, 2);
  (void)net(images);
  const Variable x = esp::placeholder("x", shape);
  net.train(false);
  const Variable shown = net(x);
  const esp::Executor executor = inference(shown);
  BOOST_TEST(nodes(executor, "conv_epilogue") == 1);
  const auto check = [&] {
    for (int i = 0; i < 2; ++i)
      BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - net(images)) < 1e-5);
  };
  check();
  for (auto [path, leaf] : net.parameters()) {
    esp::set_value(leaf, (Variable(leaf.value().clone()) * 1.5 + 0.1).value());
    check();
  }
  for (auto [path, leaf] : net.buffers())
    if (leaf.dtype() == esp::float32) {
      esp::set_value(leaf, (Variable(floats(leaf.shape(), 3)) * 0.25 + 1.0).value());
      check();
    }
  net.train(true);
  const esp::optim::Sgd sgd(0.5);
  esp::mean(esp::square(net(images) - targets)).update(sgd);
  net.train(false);
  check();
  net.train(true);
  const esp::data::Distributor feed({images, targets}, {.batch_size = 4});
  const auto [rows_of, aim] = feed.get_output_graphs<2>();
  const esp::Executor trainer = esp::mean(esp::square(net(rows_of) - aim)).get_executor({.optimizer = sgd});
  net.train(false);
  for (int step = 0; step < 3; ++step) {
    const Variable before = Variable(executor.run({{"x", images}})).value().clone();
    (void)trainer.execute({.epochs = 1, .progress = false});
    check();
    BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - before) > 1e-4);
  }
}

/// Kernels of one parameter that are scaled in two ways are kept twice.
BOOST_AUTO_TEST_CASE(one_kernel_of_two_scales) {
  const esp::Shape shape{2, 4, 6, 6};
  const Variable x = esp::placeholder("x", shape), k = esp::parameter(floats({4, 4, 3, 3}, 1), "k"),
                 a = esp::parameter(floats({4, 1, 1}, 2), "a"), b = esp::parameter(floats({4, 1, 1}, 3), "b");
  const Variable y = esp::concat({esp::conv(x, k) * a, esp::conv(x * x, k) * b}, 0);
  const esp::Executor executor = inference(y);
  BOOST_TEST(nodes(executor, "conv_epilogue") == 2);
  const esp::Feeds feeds{{"x", floats(shape, 4)}};
  BOOST_TEST(difference(executor.run(feeds), inference(y, {"fuse_convolution"}).run(feeds)) < 1e-5);
}

/// Kernels made by different ops of one name are not taken for each other.
BOOST_AUTO_TEST_CASE(kernels_made_by_custom_ops) {
  const auto times = [](double factor) {
    return esp::custom_op(
        {.name = "times",
         .forward =
             [factor](const std::vector<esp::Tensor>& in) { return (Variable(in[0]) * factor).value(); },
         .takes_device_tensors = true,
         .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  };
  const Variable kernels = esp::parameter(floats({4, 3, 3, 3}, 1));
  const Variable x = esp::placeholder("x", {2, 3, 6, 6});
  const auto net = [&](const Variable& in) {
    return esp::relu(esp::conv(in, times(2)({kernels}))) - esp::relu(esp::conv(in, times(3)({kernels})));
  };
  const esp::Tensor images = floats({2, 3, 6, 6}, 2);
  const esp::Executor executor = inference(net(x));
  BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - net(images)) < 1e-4);
}

/// Values that are read twice again and again have as many paths to a leaf as 2 to the power of their depth.
BOOST_AUTO_TEST_CASE(kernels_of_many_paths) {
  const Variable kernels = esp::parameter(esp::eye(4));
  const Variable x = esp::placeholder("x", {2, 4, 3, 3});
  Variable made = kernels;
  for (int i = 0; i < 60; ++i) made = esp::matmul(made, made);
  const auto net = [&](const Variable& in) { return esp::relu(esp::conv(in, made.reshape({4, 4, 1, 1}))); };
  const esp::Tensor images = floats({2, 4, 3, 3}, 2);
  const esp::Executor executor = inference(net(x));
  BOOST_TEST(nodes(executor, "conv_epilogue") == 1, executor.plan().str());
  BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - net(images)) < 1e-5);
}

BOOST_AUTO_TEST_CASE(plans_of_several_sizes) {
  esp::seed(9);
  Sequential net(Conv2d(8, {.kernel = 3, .bias = false}), BatchNorm(), Relu());
  (void)net(floats({2, 3, 8, 8}, 1));
  net.train(false);
  const esp::Executor executor = inference(net(esp::placeholder("x", {-1, 3, -1, 8})));
  for (int round = 0; round < 2; ++round)
    for (const esp::Shape& shape : {esp::Shape{2, 3, 8, 8}, esp::Shape{5, 3, 6, 8}, esp::Shape{1, 3, 9, 8}}) {
      if (round == 1 && shape[0] == 5) {
        Variable weight = net.parameters()[0].second;
        esp::set_value(weight, floats(weight.shape(), 4));
      }
      const esp::Tensor images = floats(shape, 2);
      BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - net(images)) < 1e-5);
    }
}

/// In training kernels change with each step, and statistics are those of the batch.
BOOST_AUTO_TEST_CASE(training_takes_in_biases_and_activations) {
  const auto losses = [](std::vector<std::string> without, bool fuses) {
    esp::seed(10);
    Sequential net(Conv2d(8, {.kernel = 3}), Tanh(), Conv2d(8, {.kernel = 3, .bias = false}), BatchNorm(),
                   Tanh());
    const esp::data::Distributor feed({floats({8, 3, 9, 9}, 1)}, {.batch_size = 4});
    const Variable loss = esp::mean(esp::square(net(feed.get_output_graphs()[0]) - 0.3));
    const esp::Executor executor =
        loss.get_executor({.optimizer = esp::optim::Sgd(0.1), .without = std::move(without)});
    BOOST_TEST(nodes(executor, "conv_epilogue") == (fuses ? 1 : 0), executor.plan().str());
    const auto history = executor.execute({.epochs = 3, .progress = false}).epochs;
    return std::vector<double>{history.front().loss_mean, history.back().loss_mean};
  };
  const auto fused = losses({}, true), apart = losses({"fuse_convolution"}, false);
  for (size_t i = 0; i < 2; ++i) BOOST_TEST(std::abs(fused[i] - apart[i]) < 1e-5);
}

BOOST_AUTO_TEST_CASE(what_is_not_taken_in) {
  esp::seed(11);
  const esp::Shape shape{2, 4, 6, 6};
  const Variable x = esp::placeholder("x", shape), kernels = esp::parameter(floats({4, 4, 3, 3}, 1), "k");
  const Variable y = esp::conv(x, kernels, {.padding = 1});
  const auto fused = [](const Variable& v) { return nodes(inference(v), "conv_epilogue"); };
  BOOST_TEST(fused(esp::relu(y)) == 1);
  BOOST_TEST(fused(esp::relu(y) + y) == 0);                   // another reader
  BOOST_TEST(fused(esp::tanh(y * 0.5 + y)) == 0);             // the program reads it twice
  BOOST_TEST(fused(esp::relu(esp::relu(y) + 1.0)) == 0);      // two activations
  BOOST_TEST(fused(esp::relu6(esp::hardtanh(y))) == 0);       // two of those as well
  BOOST_TEST(fused(esp::exp(y * 0.1)) == 0);                  // not one that oneDNN has
  BOOST_TEST(fused(esp::relu(1.0 - y)) == 0);                 // y has the other sign
  BOOST_TEST(fused(y * esp::mean(x, {1, 2, 3}, true)) == 0);  // a number for each image
  BOOST_TEST(fused(y * esp::mean(x, {0, 2, 3}, true)) == 0);  // kernels would change with x
  BOOST_TEST(fused(esp::tanh(y + esp::mean(x, {0, 2, 3}, true))) == 1);
}

BOOST_AUTO_TEST_CASE(infinities_stay) {
  const float infinity = std::numeric_limits<float>::infinity();
  esp::Tensor values = esp::zeros({1, 2, 2, 2});
  values.data<float>()[0] = infinity;
  values.data<float>()[1] = -infinity;
  const Variable x = esp::placeholder("x", {1, 2, 2, 2}),
                 kernels = esp::parameter(esp::ones({1, 2, 1, 1}), "k");
  const esp::Tensor y = inference(esp::relu(esp::conv(x, kernels))).run({{"x", values}});
  BOOST_TEST(y.span<float>()[0] == infinity);
  BOOST_TEST(y.span<float>()[1] == 0);
}

BOOST_AUTO_TEST_CASE(nan_stays) {
  esp::Tensor values = floats({1, 16, 8, 8}, 1);
  values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Variable x = esp::placeholder("x", {1, 16, 8, 8}), kernels = floats({16, 16, 1, 1}, 2);
  for (const bool sigmoid : {false, true}) {
    const Variable y_of_x = esp::conv(x, kernels);
    const esp::Executor executor = inference(sigmoid ? esp::sigmoid(y_of_x) : esp::tanh(y_of_x));
    BOOST_TEST(nodes(executor, "conv_epilogue") == 1);
    const esp::Tensor y = executor.run({{"x", values}});
    BOOST_TEST((std::isnan(y.span<float>()[0]) || (esp::onednn_for_arm && sigmoid)));
    BOOST_TEST(!std::isnan(y.span<float>()[1]));
  }
}

/// oneDNN's ReLU gives 0 for NaN: training takes its own.
BOOST_AUTO_TEST_CASE(training_that_diverges_shows_it) {
  for (const bool clips : {false, true}) {
    const Sequential net(Conv2d(8, {.kernel = 3})), next(Conv2d(2, {.kernel = 3}));
    esp::Tensor images = floats({4, 3, 9, 9}, 1);
    const esp::data::Distributor feed({images}, {.batch_size = 4});
    const Variable y = net(feed.get_output_graphs()[0]);
    const Variable loss = esp::mean(esp::square(next(clips ? esp::relu6(y) : esp::relu(y))));
    const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
    esp::set_value(net.parameters()[0].second,
                   esp::full(net.parameters()[0].second.shape(), std::numeric_limits<double>::quiet_NaN(),
                             esp::float32));
    BOOST_CHECK_THROW(executor.execute({.epochs = 1, .progress = false}), esp::NumericError);
  }
}

BOOST_AUTO_TEST_CASE(a_network_of_residual_blocks) {
  esp::seed(12);
  Sequential net = vision::resnet18({.classes = 5});
  vary(net);
  net.train(false);
  const Variable x = esp::placeholder("x", {1, 3, 33, 40});
  const esp::Executor executor = inference(net(x));
  BOOST_TEST(nodes(executor, "conv_epilogue") == 20);
  BOOST_TEST(nodes(executor, "conv") == 0);
  const esp::Tensor images = floats({1, 3, 33, 40}, 1);
  const Variable expected = net(images);
  BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - expected) < 1e-4 * largest(expected));
}

/// Programs of two convolutions are divided only where one of these takes a part in, and the pass says so.
BOOST_AUTO_TEST_CASE(programs_that_read_two_convolutions) {
  const Variable x = esp::placeholder("x", {2, 4, 6, 6}), bias = esp::parameter(floats({4, 1, 1}, 1), "bias"),
                 a = esp::conv(x, esp::parameter(floats({4, 4, 3, 3}, 2), "a")),
                 b = esp::conv(x, esp::parameter(floats({4, 4, 3, 3}, 3), "b"));
  const struct {
    std::string name;
    Variable y;
    int64_t epilogues, programs;
  } cases[] = {
      {"both parts", esp::relu((a + bias) + (b - bias)), 2, 0},
      {"one part", esp::tanh(a + bias) * esp::gelu(b), 1, 1},
      {"none", esp::gelu(a) * esp::gelu(b), 0, 1},
  };
  const esp::CompileOptions options{.inference = true};
  for (const auto& c : cases) {
    esp::Graph graph = esp::freeze({c.y}, {}, {}, true);
    esp::channels_last(graph);
    esp::fuse_pointwise(graph, options);
    esp::dead_nodes(graph);
    const std::string before = graph.str();
    BOOST_TEST(esp::fuse_convolution(graph, options) == (c.epilogues > 0), c.name);
    const std::string after = graph.str();
    BOOST_TEST((after != before) == (c.epilogues > 0), c.name);
    BOOST_TEST(count(after, " conv_epilogue(") == c.epilogues, c.name << "\n" << after);
    BOOST_TEST(count(after, " fused(") == c.programs, c.name << "\n" << after);
    esp::verify(graph, "fuse_convolution");
    BOOST_TEST(!esp::fuse_convolution(graph, options), c.name);
    BOOST_TEST(graph.str() == after, c.name);
  }
}

BOOST_AUTO_TEST_CASE(a_part_that_is_an_output_too) {
  const auto a = [](const Variable& in) { return esp::conv(in, floats({4, 4, 3, 3}, 2)); };
  const auto b = [](const Variable& in) { return esp::conv(in, floats({4, 4, 3, 3}, 3)); };
  const Variable x = esp::placeholder("x", {2, 4, 6, 6}), bias = esp::parameter(floats({4, 1, 1}, 1), "bias"),
                 shifted = a(x) + bias;
  const esp::Executor fused =
      (esp::relu(shifted) + esp::tanh(b(x) - bias))
          .get_executor({.mode = esp::Mode::inference, .outputs = {{"shifted", shifted}}});
  const esp::Tensor values = floats({2, 4, 6, 6}, 4);
  const esp::StepValues found = fused.run_outputs({{"x", values}});
  const Variable expected = a(values) + bias;
  BOOST_TEST(largest(Variable(found.outputs.at("shifted")) - expected) < 3e-5);
  BOOST_TEST(largest(Variable(found.value) - (esp::relu(expected) + esp::tanh(b(values) - bias))) < 3e-5);
}

/// cuDNN adds a bias to each channel, and a residual, and has ReLU.
BOOST_AUTO_TEST_CASE(channels_are_shifted_and_divided) {
  const Variable x = esp::placeholder("x", {2, 3, 6, 6}), k = esp::parameter(floats({4, 3, 3, 3}, 1)),
                 shift = esp::parameter(floats({4, 1, 1}, 2)),
                 scale = esp::parameter(numbers({4, 1, 1}, 1, 3, 3).to(esp::float32));
  const Variable y = esp::relu((esp::conv(x, k) + shift) / scale);
  const esp::Executor executor = inference(y);
  BOOST_TEST(nodes(executor, "conv") == 0);
  const esp::Feeds feeds{{"x", floats({2, 3, 6, 6}, 4)}};
  BOOST_TEST(difference(executor.run(feeds), inference(y, {"fuse_convolution"}).run(feeds)) < 1e-5);
}

BOOST_AUTO_TEST_CASE(a_training_shows_nan_behind_relu) {
  const Variable x = esp::placeholder("x", {2, 3, 6, 6}), k = esp::parameter(floats({4, 3, 3, 3}, 1)),
                 w = esp::parameter(esp::ones({2, 4, 4, 4}));
  esp::set_trainable(k, false);
  const Variable loss = esp::mean(esp::relu(esp::conv(x, k)) * w);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.0)});
  esp::Tensor in = floats({2, 3, 6, 6}, 4);
  in.at<float>({0, 1, 2, 3}) = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(std::isnan(executor.run({{"x", in}}).item()));
}

BOOST_AUTO_TEST_SUITE_END()
