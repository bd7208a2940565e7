// How much scratch memory kernels take of a workspace.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "espalier/core/device.h"
#include "espalier/core/workspace.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/plan/plan_data.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "plan_steps.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(scratch_memory)

/// With a region of as many bytes as its op asks for, a kernel takes no other memory and writes to none
/// behind it. With less, it takes other memory.
BOOST_AUTO_TEST_CASE(kernels_take_what_their_ops_ask_for) {
  const auto leaf = [](const esp::Shape& shape, uint64_t which, esp::DType dtype = esp::float32) {
    return esp::parameter(numbers(shape, -1, 1, which).to(dtype), "leaf");
  };
  std::vector<Variable> results;
  const auto add = [&](const Variable& y, std::initializer_list<Variable> operands) {
    const Variable loss = esp::sum(esp::square(y));
    results.push_back(y);
    for (const Variable& each : operands) results.push_back(loss.gradient(each));
  };
  struct Convolution {
    esp::Shape x, kernels;
    esp::ConvolutionOptions options;
  };
  for (const auto& [shape, kernel_shape, options] :
       {Convolution{{4, 64, 24, 24}, {48, 64, 3, 3}, {.padding = 1}},  // by Winograd's algorithm
        Convolution{{2, 64, 2, 2}, {96, 64, 3, 3}, {.padding = 1}},    // of few windows
        Convolution{{2, 6, 9, 8}, {12, 3, 5, 3}, {.stride = 2, .groups = 2}},
        Convolution{{2, 3, 9}, {4, 3, 2}, {}}}) {
    const Variable x = leaf(shape, 1), kernels = leaf(kernel_shape, 2);
    add(esp::conv(x, kernels, options), {x, kernels});
  }
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const Variable q = leaf({2, 4, 70, 40}, 1, dtype), k = leaf({2, 2, 300, 40}, 2, dtype),
                   v = leaf({2, 2, 300, 12}, 3, dtype);
    add(esp::scaled_dot_product_attention(q, k, v), {q, k, v});
    for (const esp::RecurrentCell cell : {esp::RecurrentCell::lstm, esp::RecurrentCell::gru})
      for (const int64_t hidden : {5, 64})
        for (const bool packed : {false, true}) {
          esp::RecurrenceForm form{.cell = cell};
          if (packed) form.batch_sizes = {37, 37, 16, 1};
          const int64_t gates = esp::gates_of(cell) * hidden;
          const Variable x = leaf(packed ? esp::Shape{91, gates} : esp::Shape{4, 37, gates}, 1, dtype),
                         weight = leaf({gates, hidden}, 2, dtype), h = leaf({37, hidden}, 3, dtype),
                         c = leaf({37, hidden}, 4, dtype);
          esp::RecurrenceInputs in{x, weight, h};
          if (cell == esp::RecurrentCell::lstm) in.c = c;
          add(esp::recurrence(in, form).h, {h});
        }
  }
  const Variable weight = leaf({16, 12}, 1);
  Variable sum = esp::zeros({8, 12});
  for (const uint64_t which : {2, 3, 4})  // of few rows each, which are joined
    sum = sum + esp::tanh(esp::matmul(leaf({8, 16}, which), weight));
  add(sum, {weight});
  const int before = esp::num_threads();
  esp::set_num_threads(3);
  const auto plan = esp::compile(step_of(results), {}, {});
  std::map<std::string, int> counts;
  for (const esp::GraphNode& node : plan->graph.nodes) {
    std::vector<esp::Tensor> inputs, outputs;
    for (const esp::ValueRef& input : node.inputs) {
      const esp::Spec& spec = plan->graph.spec(input);
      inputs.push_back(numbers(spec.shape).to(spec.dtype).contiguous_copy());
    }
    for (const esp::Spec& spec : node.outputs) outputs.emplace_back(spec.shape, spec.dtype);
    esp::PlannedCall planned{esp::DeviceType::cpu, {}, {}, {node.outputs.begin(), node.outputs.size()}};
    esp::KernelCall call;
    for (const esp::Tensor& input : inputs) call.inputs.push_back(&input);
    for (esp::Tensor& output : outputs) call.outputs.push_back(&output);
    std::vector<esp::Spec> specs;
    for (const esp::Tensor& input : inputs) specs.push_back(input.spec());
    for (size_t i = 0; i < inputs.size(); ++i) {
      planned.inputs.push_back(&specs[i]);
      planned.layouts.push_back(&inputs[i].layout());
    }
    const int64_t bytes = node.op->workspace_bytes(planned);
    if (bytes == 0 || node.op->name() == "matmul") continue;
    ++counts[std::string(node.op->name())];
    const auto taken_beside = [&](int64_t of_region) {
      const esp::Tensor memory = esp::full({of_region + (1 << 20)}, 77, esp::uint8);
      esp::Workspace workspace(memory.slice(0, 0, of_region));
      esp::BindContext context;
      context.offer(workspace);
      const int64_t allocated = esp::memory_stats().allocations;
      const auto kernel = node.op->bind_cpu(call, context);
      const int64_t taken = esp::memory_stats().allocations - allocated;
      kernel->run({});
      BOOST_TEST(std::ranges::count(memory.span<uint8_t>().subspan(static_cast<size_t>(of_region)), 77) ==
                 1 << 20);
      return taken;
    };
    (void)taken_beside(bytes);  // kernels of products are chosen when they are first bound
    BOOST_TEST(taken_beside(bytes) == 0, node.op->name() << " " << node.outputs[0].shape.str());
    BOOST_TEST(taken_beside(esp::aligned_bytes(bytes) - esp::aligned_bytes(1)) > 0,
               node.op->name() << " " << node.outputs[0].shape.str());
  }
  for (const char* op : {"conv", "conv_transpose", "conv_kernels"}) BOOST_TEST(counts[op] > 0, op);
  BOOST_TEST(counts["sum_of_products"] > 0);
  for (const char* op : {"attention", "attention_gradient"}) BOOST_TEST(counts[op] == 2, op);
  for (const char* op : {"recurrence", "recurrence_gradient"}) BOOST_TEST(counts[op] == 16, op);
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_SUITE_END()
