// On GPUs: batch normalization that goes into the kernels of the convolution in front of it.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Variable;

namespace {

esp::Tensor floats(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}

/// With statistics and parameters that change something.
BatchNorm batch_norm(int64_t channels, BatchNormOptions options = {}) {
  BatchNorm norm(channels, options);
  if (options.affine) {
    esp::set_value(norm.parameter("weight"), floats({channels}, 21));
    esp::set_value(norm.parameter("bias"), floats({channels}, 22));
  }
  esp::set_value(norm.buffer("running_mean"), floats({channels}, 30));
  esp::set_value(norm.buffer("running_var"), numbers({channels}, 0.5, 2, 31).to(esp::float32));
  norm.train(false);
  return norm;
}

/// For a GPU, with the passes up to `fuse_convolution`.
esp::Graph graph_of(const Variable& result, bool inference, bool folds) {
  esp::Graph graph = esp::freeze({result}, {}, {}, inference);
  graph.device = esp::DeviceType::cuda;
  const esp::CompileOptions options{.inference = inference, .device = graph.device};
  esp::simplify(graph, options);
  BOOST_TEST(esp::fold_batch_norm(graph, options) == folds);
  esp::verify(graph, "fold_batch_norm");
  BOOST_TEST(!esp::fold_batch_norm(graph, options));
  esp::fuse_pointwise(graph, options);
  esp::dead_nodes(graph);
  esp::fuse_convolution(graph, options);
  return graph;
}
/// The result, by one kernel of the CPU for each node.
esp::Tensor computed(const esp::Graph& graph, const esp::Tensor& x) {
  std::vector<std::vector<esp::Tensor>> values;
  for (const esp::GraphNode& n : graph.nodes) {
    std::vector<esp::Tensor>& own = values.emplace_back();
    if (n.op->feed()) {
      own.push_back(x);
    } else if (n.is_constant()) {
      own.push_back(*n.constant);
    } else if (n.leaf.defined()) {
      own.push_back(n.leaf.value());
    } else {
      esp::KernelCall call;
      for (const esp::ValueRef& input : n.inputs) call.inputs.push_back(&values[input.node][input.output]);
      for (const esp::Spec& spec : n.outputs) own.emplace_back(spec.shape, spec.dtype);
      for (esp::Tensor& out : own) call.outputs.push_back(&out);
      esp::backend(esp::cpu()).run(*n.op, call);
    }
  }
  return values[graph.results[0].node][graph.results[0].output];
}

int64_t count(const esp::Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes, [&](const esp::GraphNode& n) { return n.op->name() == op; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fold_batch_norm)

BOOST_AUTO_TEST_CASE(what_is_folded) {
  const Variable x = esp::placeholder("x", {2, 4, 6, 6});
  const Conv2d conv(4, 4, {.kernel = 3, .padding = 1, .bias = false}),
      biased(4, 4, {.kernel = 3, .padding = 1}), grouped(4, 4, {.kernel = 3, .padding = 1, .groups = 2});
  const BatchNorm norm = batch_norm(4), plain = batch_norm(4, {.affine = false});
  const Variable y = conv(x), scale = esp::parameter(floats({4, 1, 1}, 1)),
                 row = esp::parameter(floats({6}, 2));
  const struct {
    std::string name;
    Variable result;
    bool folds;
    bool taken = true;  ///< by cuDNN's call of the convolution
  } cases[] = {
      {"batch normalization", norm(y), true},
      {"without parameters", plain(y), true},
      {"behind a bias", norm(biased(x)), true},
      {"groups", norm(grouped(x)), true},
      {"ReLU", esp::relu(norm(y)), true},
      {"a shortcut, and ReLU", esp::relu(norm(y) + x), true},
      {"a scale alone", y * scale, true, false},
      {"a number", y * 0.5 + scale, true},
      {"a scale, from the left", scale * y + scale, true},
      {"a bias alone", biased(x), false},
      {"over the channel", scale / y, false, false},
      {"a scale for each column", y * row, false, false},
      {"a scale that is made of x", y * esp::mean(x, {0, 2, 3}, true).reshape({4, 1, 1}), false, false},
      {"the result is read elsewhere, too", norm(y) + y, false, false},
      {"kernels with more elements", norm(conv(esp::slice(x, -1, 0, 1))), false, false},
  };
  for (const auto& c : cases) {
    BOOST_TEST_CONTEXT(c.name) {
      const esp::Graph graph = graph_of(c.result, true, c.folds);
      BOOST_TEST(count(graph, "conv_epilogue") == int64_t{c.taken || c.name == "a bias alone"}, graph.str());
      graph_of(c.result, false, false);
    }
  }
  esp::Graph on_cpu = esp::freeze({norm(y)}, {}, {}, true);
  BOOST_TEST(!esp::fold_batch_norm(on_cpu, {.inference = true}));
}

/// The second convolution reads what takes the place of the first one's batch normalization.
BOOST_AUTO_TEST_CASE(two_in_a_row) {
  const Conv2d first(4, 6, {.kernel = 3, .padding = 1, .bias = false}),
      second(6, 4, {.kernel = 3, .padding = 1});
  const BatchNorm between = batch_norm(6), behind = batch_norm(4);
  const esp::Tensor images = floats({2, 4, 6, 6}, 3);
  const auto net = [&](const Variable& x) { return behind(second(between(first(x)))); };
  esp::Graph graph = esp::freeze({net(esp::placeholder("x", images.shape()))}, {}, {}, true);
  graph.device = esp::DeviceType::cuda;
  const esp::CompileOptions options{.inference = true, .device = graph.device};
  esp::simplify(graph, options);
  BOOST_TEST(esp::fold_batch_norm(graph, options));
  esp::verify(graph, "fold_batch_norm");
  for (const esp::GraphNode& n : graph.nodes)
    if (const esp::Shape& shape = n.outputs[0].shape; shape.rank() == 4 && shape[0] == images.shape()[0])
      BOOST_TEST((n.op->feed() || n.op->name() == "conv" || n.op->name() == "add"), graph.str());
  BOOST_TEST(difference(computed(graph, images), net(images).value()) < 1e-5);
  BOOST_TEST(!esp::fold_batch_norm(graph, options));
  esp::fuse_pointwise(graph, options);
  esp::dead_nodes(graph);
  esp::fuse_convolution(graph, options);
  BOOST_TEST(count(graph, "conv_epilogue") == 2, graph.str());
}

BOOST_AUTO_TEST_CASE(values_on_gpus) {
  esp::seed(3);
  const Conv2d first(3, 6, {.kernel = 3, .padding = 1, .bias = false}),
      second(6, 6, {.kernel = 3, .padding = 1});
  const BatchNorm norm = batch_norm(6), behind = batch_norm(6);
  const esp::Tensor images = floats({4, 3, 7, 6}, 3);
  const Variable x = esp::placeholder("x", {-1, 3, 7, 6}), hidden = esp::relu(norm(first(x)));
  const auto run = [&](const esp::Executor& executor) {
    (void)executor.run({{"x", images}});
    return executor.run({{"x", images}}).to(esp::float32);
  };
  const auto check = [&](const Variable& y, esp::Device gpu, esp::Precision precision, double tolerance) {
    const auto executor = [&](esp::Device device, esp::Precision p, std::vector<std::string> without) {
      return y.get_executor(
          {.mode = esp::Mode::inference, .devices = {device}, .precision = p, .without = std::move(without)});
    };
    const esp::Executor planned = executor(gpu, precision, {}),
                        apart = executor(gpu, precision, {"fold_batch_norm"});
    const esp::Executor on_cpu = executor(esp::cpu(), esp::Precision::float32, {});
    BOOST_TEST(difference(run(planned), run(on_cpu)) < tolerance);
    BOOST_TEST(difference(run(apart), run(on_cpu)) < tolerance);
    // Kernels are scaled anew for other values of the leaves.
    const esp::Tensor before = norm.parameter("weight").value().clone();
    esp::set_value(norm.parameter("weight"), floats({6}, 50));
    BOOST_TEST(difference(run(planned), run(on_cpu)) < tolerance);
    esp::set_value(norm.parameter("weight"), before);
  };
  for (const esp::Device gpu : gpus_to_test())
    for (const Variable& y : {esp::relu(behind(second(hidden)) + hidden), behind(second(norm(first(x))))}) {
      check(y, gpu, esp::Precision::float32, 1e-5);
      check(y, gpu, esp::Precision::float16, 0.02);
      check(y, gpu, esp::Precision::bfloat16, 0.15);
    }
}

BOOST_AUTO_TEST_SUITE_END()
