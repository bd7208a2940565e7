// Which programs behind convolutions cuDNN's call of a convolution takes in on GPUs. Needs none.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

esp::Tensor floats(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_convolution_programs)

BOOST_AUTO_TEST_CASE(programs_that_a_gpu_takes_in) {
  const Variable x = esp::placeholder("x", {2, 4, 6, 6}), bias = esp::parameter(floats({4, 1, 1}, 1), "bias"),
                 kernels = esp::parameter(floats({4, 4, 3, 3}, 2), "kernels"),
                 y = esp::conv(x, kernels, {.padding = 1}), row = esp::parameter(floats({6}, 3), "row");
  const auto low = [](const Variable& v) { return esp::cast(v, esp::float16); };
  const Variable y16 = esp::conv(low(x), low(kernels), {.padding = 1});
  const struct {
    std::string name;
    Variable result;
    bool taken;
  } cases[] = {
      {"bias", y + bias, true},
      {"bias and residual", y + bias + x, true},
      {"bias and ReLU", esp::relu(y + bias), true},
      {"residual, bias and ReLU", esp::relu(x + y + bias), true},
      {"16 bits", esp::relu(y16 + low(bias)), true},
      {"16 bits, and a cast", esp::cast(y16 + low(bias), esp::float32), false},
      {"no bias", esp::relu(y), false},
      {"a row that is no bias", y + row, false},
      {"a scale", y * bias, false},
      {"two biases", y + bias + bias * 2.0, false},
      {"tanh", esp::tanh(y + bias), false},
      {"clip", esp::relu6(y + bias), false},
      {"64 bits",
       esp::conv(esp::cast(x, esp::float64), esp::cast(kernels, esp::float64)) +
           esp::cast(bias, esp::float64),
       false},
  };
  for (const auto& c : cases)
    for (const bool inference : {true, false}) {
      esp::Graph graph = esp::freeze({c.result}, {}, {}, inference);
      graph.device = esp::DeviceType::cuda;
      const esp::CompileOptions options{.inference = inference, .device = graph.device};
      esp::channels_last(graph, options);
      esp::fuse_pointwise(graph, options);
      esp::dead_nodes(graph);
      BOOST_TEST(esp::fuse_convolution(graph, options) == c.taken, c.name);
      const auto taken = std::ranges::count_if(
          graph.nodes, [](const esp::GraphNode& node) { return node.op->name() == "conv_epilogue"; });
      BOOST_TEST(taken == int64_t{c.taken}, c.name << "\n" << graph.str());
      esp::verify(graph, "fuse_convolution");
      BOOST_TEST(!esp::fuse_convolution(graph, options), c.name);
    }
}

BOOST_AUTO_TEST_SUITE_END()
