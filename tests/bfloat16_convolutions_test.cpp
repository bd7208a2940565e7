// Convolutions of bfloat16 on a CPU with what follows them in one node. Processors on which oneDNN is slow
// with bfloat16 compute the two parts one after the other.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include "convolution_rows.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/fused/convolution_epilogue.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/vision/models.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "kept_values.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Variable;

namespace {

int64_t nodes(const std::string& text, const std::string& op) {
  const std::string word = " " + op + (op.ends_with(")") ? "" : "(");
  int64_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

esp::Executor inference(const Variable& y, std::vector<std::string> without = {}) {
  return y.get_executor(
      {.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16, .without = std::move(without)});
}

/// How often the kernels of a convolution are rounded by a node of their own: not where oneDNN has bfloat16,
/// since they are rounded then where they are packed.
int64_t casts_of_kernels() { return esp::has_convolution_primitive(esp::bfloat16) ? 0 : 1; }

}  // namespace

BOOST_AUTO_TEST_SUITE(bfloat16_convolutions)

/// Kernels are scaled before they are rounded, and results are rounded once: they are at least as close to
/// float32 as those of single nodes.
BOOST_AUTO_TEST_CASE(values_are_close_to_float32) {
  for (const ConvolutionRow& row : convolution_rows()) {
    esp::seed(5);
    const Sequential net = network(row);
    const Variable x = esp::placeholder("x", row.x), y = row.tail(net, x);
    const esp::Executor fused = inference(y), apart = inference(y, {"fuse_convolution"});
    const std::string plan = fused.plan().str();
    BOOST_TEST(nodes(plan, "conv_epilogue") == 1, row.name << "\n" << plan);
    BOOST_TEST(nodes(plan, "conv") == 0, row.name);
    // Of x, and of the bias of each channel: kernels are rounded once.
    const int64_t casts = nodes(plan, "cast(dtype=bfloat16)") - casts_of_kernels();
    BOOST_TEST((casts == 1 || (casts == 2 && !row.norm)), row.name << "\n" << plan);
    for (const uint64_t which : {2, 3}) {
      const esp::Tensor images = floats(row.x, which);
      const Variable expected = row.tail(net, images);
      const auto error = [&](const esp::Executor& e) {
        return largest(Variable(e.run({{"x", images}})) - expected) / largest(expected);
      };
      BOOST_TEST(error(fused) < 0.01, row.name);
      BOOST_TEST(error(fused) < 1.2 * error(apart) + 0.002, row.name);
    }
  }
}

/// A residual is read in float32, the next convolution reads 16 bits.
BOOST_AUTO_TEST_CASE(results_of_both_types) {
  esp::seed(6);
  const ConvolutionRow row{"", {2, 16, 9, 7}, as_it_is};
  const Sequential first = network(row), second = network(row);
  const Variable x = esp::placeholder("x", row.x);
  const auto net = [&](const Variable& in) {
    const Variable between = esp::relu(first(in));
    return esp::relu(second(between) + between);
  };
  const esp::Executor fused = inference(net(x));
  const std::string plan = fused.plan().str();
  BOOST_TEST(nodes(plan, "conv_epilogue") == 2, plan);
  BOOST_TEST(nodes(plan, "fused") == 2, plan);                                          // scales of channels
  BOOST_TEST(nodes(plan, "cast(dtype=bfloat16)") == 2 + 2 * casts_of_kernels(), plan);  // x, what is between
  BOOST_TEST(plan.find("in place") == std::string::npos, plan);  // y is not written over the residual
  const esp::Tensor images = floats(row.x, 2);
  const Variable expected = net(images);
  BOOST_TEST(largest(Variable(fused.run({{"x", images}})) - expected) < 0.01 * largest(expected));
}

/// oneDNN adds residuals of 16 bits and of float32, and gives results of both.
BOOST_AUTO_TEST_CASE(residuals_of_both_types) {
  esp::seed(9);
  const esp::Tensor k[] = {floats({16, 16, 3, 3}, 1), floats({16, 16, 3, 3}, 2), floats({16, 16, 3, 3}, 3)};
  const Variable shift = esp::parameter(floats({16, 1, 1}, 4)), scale = esp::parameter(floats({16, 1, 1}, 5));
  const auto conv = [&](const Variable& x, int i) {
    return esp::conv(x, esp::parameter((Variable(k[i]) * 0.125).value()), {.padding = {{1, 1}, {1, 1}}});
  };
  // What is divided is computed in float32; sums with parameters stay in 16 bits.
  const auto wide = [&](const Variable& y) { return y / esp::exp(scale); };
  const auto low = [&](const Variable& y) { return y + shift; };
  const struct {
    std::string name;
    std::function<Variable(const Variable&)> net;
  } nets[] = {
      {"16 bits, to 16 bits",
       [&](const Variable& x) {
         const Variable first = esp::tanh(low(conv(x, 0)));
         return conv(esp::tanh(low(conv(first, 1)) + first), 2);
       }},
      {"16 bits, to float32",
       [&](const Variable& x) {
         const Variable first = esp::tanh(low(conv(x, 0)));
         return esp::tanh(low(conv(first, 1)) + first);
       }},
      {"float32, to 16 bits",
       [&](const Variable& x) {
         return conv(esp::relu(wide(conv(x, 1)) + wide(conv(esp::tanh(low(conv(x, 0))), 2))), 2);
       }},
  };
  const Variable x = esp::placeholder("x", {2, 16, 9, 7});
  const esp::Tensor images = floats({2, 16, 9, 7}, 6);
  for (const auto& c : nets) {
    const Variable expected = c.net(images);
    const auto error = [&](const esp::Executor& e) {
      return largest(Variable(e.run({{"x", images}})) - expected) / largest(expected);
    };
    const esp::Executor fused = inference(c.net(x)), apart = inference(c.net(x), {"fuse_convolution"});
    const std::string plan = fused.plan().str();
    BOOST_TEST(nodes(plan, "conv_epilogue") >= 2, c.name << "\n" << plan);
    BOOST_TEST(nodes(plan, "fused") <= 2, c.name << "\n" << plan);  // of scales at most
    BOOST_TEST(error(fused) < 0.02, c.name);
    BOOST_TEST(error(fused) < 1.5 * error(apart) + 0.002, c.name);
  }
}

BOOST_AUTO_TEST_CASE(kernels_that_do_not_lie_side_by_side) {
  const Variable kernels = esp::parameter(floats({16, 16, 3, 3}, 1).to(esp::bfloat16));
  const auto net = [&](const Variable& x) {
    return esp::tanh(esp::conv(x, esp::transpose(kernels, {1, 0, 2, 3})) + 0.125);
  };
  const esp::Executor executor = inference(net(esp::placeholder("x", {1, 16, 6, 6}, esp::bfloat16)));
  const esp::Tensor images = floats({1, 16, 6, 6}, 2).to(esp::bfloat16);
  const Variable y = esp::cast(Variable(executor.run(esp::Feeds{{"x", images}})), esp::float32);
  BOOST_TEST(largest(y - esp::cast(net(images), esp::float32)) < 0.02);
}

/// Where nothing is kept, the node rounds its kernels in each run, and computes its parts one after the
/// other.
BOOST_AUTO_TEST_CASE(the_node_computes_the_same_in_parts) {
  for (const ConvolutionRow& row : convolution_rows()) {
    esp::seed(5);
    const Sequential net = network(row);
    esp::Graph graph = esp::freeze({row.tail(net, esp::placeholder("x", row.x))}, {}, {}, true);
    const esp::CompileOptions options{.inference = true, .precision = esp::Precision::bfloat16};
    esp::lower_precision(graph, options);
    esp::channels_last(graph);
    esp::fuse_pointwise(graph, options);
    esp::fuse_convolution(graph, options);
    bool found = false;
    for (const esp::GraphNode& n : graph.nodes) {
      const auto* op = dynamic_cast<const esp::ConvolutionEpilogue*>(n.op.get());
      if (!op) continue;
      found = true;
      std::vector<esp::Tensor> inputs;
      for (const esp::ValueRef& input : n.inputs)
        inputs.push_back(floats(graph.spec(input).shape, inputs.size()).to(graph.spec(input).dtype));
      BOOST_TEST((inputs[1].dtype() == (casts_of_kernels() == 0 ? esp::float32 : esp::bfloat16)));
      const auto run = [&](const esp::BindContext& context) {
        esp::Tensor y(n.outputs[0].shape, n.outputs[0].dtype);
        esp::KernelCall call;
        for (const esp::Tensor& input : inputs) call.inputs.push_back(&input);
        call.outputs = {&y};
        const auto kernel = op->bind_cpu(call, context);
        kernel->run({});
        kernel->run({});
        return y.to(esp::float32);
      };
      OneVersion kept;
      esp::BindContext with_kept;
      with_kept.offer<esp::KeptValues>(kept);
      const Variable whole = run(with_kept), parts = run({});
      BOOST_TEST(largest(whole - parts) < 0.02 * largest(whole), row.name);
      BOOST_TEST(largest(whole) > 0.1, row.name);
    }
    BOOST_TEST(found, row.name);
  }
}

BOOST_AUTO_TEST_CASE(kernels_follow_the_leaves) {
  esp::seed(8);
  const ConvolutionRow row{"", {2, 3, 8, 8}, as_it_is};
  const Sequential net = network(row);
  const esp::Executor executor = inference(esp::relu(net(esp::placeholder("x", row.x))));
  const esp::Tensor images = floats(row.x, 1);
  const auto check = [&] {
    const Variable expected = esp::relu(net(images));
    BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - expected) < 0.01 * largest(expected));
  };
  check();
  for (auto [path, leaf] : net.parameters()) {
    esp::set_value(leaf, (Variable(leaf.value().clone()) * 1.5 + 0.25).value());
    check();
  }
}

/// In training kernels are rounded in each step, and ReLU stays outside, which would hide a NaN.
BOOST_AUTO_TEST_CASE(training_takes_in_biases_and_activations) {
  const auto losses = [](std::vector<std::string> without, bool fuses) {
    esp::seed(10);
    Sequential net(Conv2d(8, {.kernel = 3}), Tanh(), Conv2d(8, {.kernel = 3}), Relu());
    const esp::data::Distributor feed({floats({8, 3, 9, 9}, 1)}, {.batch_size = 4});
    const Variable loss = esp::mean(esp::square(net(feed.get_output_graphs()[0]) - 0.3));
    const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1),
                                                      .precision = esp::Precision::bfloat16,
                                                      .without = std::move(without)});
    BOOST_TEST(nodes(executor.plan().str(), "conv_epilogue") == (fuses ? 1 : 0), executor.plan().str());
    const auto history = executor.execute({.epochs = 3, .progress = false}).epochs;
    return std::vector<double>{history.front().loss_mean, history.back().loss_mean};
  };
  const auto fused = losses({}, true), apart = losses({"fuse_convolution"}, false);
  for (size_t i = 0; i < 2; ++i) BOOST_TEST(std::abs(fused[i] - apart[i]) < 0.01 * apart[i]);
  BOOST_TEST(fused[1] < fused[0]);
}

BOOST_AUTO_TEST_CASE(a_network_of_residual_blocks) {
  esp::seed(12);
  Sequential net = vision::resnet18({.classes = 5});
  net.train(false);
  const esp::Executor executor = inference(net(esp::placeholder("x", {1, 3, 33, 40})));
  const std::string plan = executor.plan().str();
  BOOST_TEST(nodes(plan, "conv_epilogue") == 20);
  BOOST_TEST(nodes(plan, "conv") == 0);
  const esp::Tensor images = floats({1, 3, 33, 40}, 1);
  const Variable expected = net(images);
  BOOST_TEST(largest(Variable(executor.run({{"x", images}})) - expected) < 0.05 * largest(expected));
}

BOOST_AUTO_TEST_CASE(nan_stays) {
  esp::Tensor values = floats({1, 16, 8, 8}, 1);
  values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const Variable x = esp::placeholder("x", {1, 16, 8, 8}), kernels = floats({16, 16, 1, 1}, 2);
  const esp::Tensor y = inference(esp::tanh(esp::conv(x, kernels))).run({{"x", values}});
  BOOST_TEST(std::isnan(y.span<float>()[0]));
  BOOST_TEST(!std::isnan(y.span<float>()[1]));
}

BOOST_AUTO_TEST_SUITE_END()
