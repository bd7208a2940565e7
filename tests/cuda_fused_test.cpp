// Fused programs on a GPU, real or emulated, against the CPU's interpreter.
#include <boost/test/unit_test.hpp>

#include "espalier/core/bind_context.h"
#include "espalier/core/error.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/optim/adam.h"
#include "fused_programs.h"
#include "fuzz_tree.h"
#include "gpu_testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

using Tensors = std::vector<esp::Tensor>;

esp::KernelCall call_of(const Tensors& inputs, Tensors& outputs) {
  esp::KernelCall call;
  for (const esp::Tensor& in : inputs) call.inputs.push_back(&in);
  for (esp::Tensor& out : outputs) call.outputs.push_back(&out);
  return call;
}

Tensors on_the_cpu(const FusedCase& c) {
  Tensors outputs;
  for (const esp::Spec& spec : c.outputs) outputs.emplace_back(spec.shape, spec.dtype);
  c.op->run_cpu(call_of(c.inputs, outputs));
  return outputs;
}

void check_close(const Tensors& results, const Tensors& expected) {
  for (size_t o = 0; o < expected.size(); ++o) {
    const double tolerance = expected[o].dtype() == esp::float64 ? 1e-12 : 1e-5;
    const double found = difference(results[o].to(esp::cpu()), expected[o]);
    BOOST_TEST(found < tolerance, "output " << o << " is off by " << found);
  }
}

/// Runs twice, since kernels must restore their counters, then in place of each input that it may overwrite.
void check_case(const FusedCase& c) {
  const Tensors expected = on_the_cpu(c);
  Tensors inputs, outputs;
  for (const esp::Tensor& in : c.inputs) inputs.push_back(on_gpu(in));
  for (const esp::Spec& spec : c.outputs) outputs.emplace_back(spec.shape, spec.dtype, esp::gpu());
  const auto kernel = esp::bind_kernel(*c.op, call_of(inputs, outputs));
  for (int run = 0; run < 2; ++run) {
    kernel->run({});
    check_close(outputs, expected);
  }
  for (size_t o = 0; o < outputs.size(); ++o)
    for (size_t i = 0; i < inputs.size(); ++i) {
      const esp::Tensor& in = inputs[i];
      if (!c.op->can_write_over(o, i) || !in.contiguous() || in.elements() != outputs[o].elements() ||
          esp::size_of(in.dtype()) != esp::size_of(outputs[o].dtype()))
        continue;
      Tensors fresh = inputs, over = outputs;
      fresh[i] = in.clone();
      over[o] = esp::Tensor(fresh[i].storage(), esp::Layout(outputs[o].shape()), outputs[o].dtype());
      esp::bind_kernel(*c.op, call_of(fresh, over))->run({});
      check_close(over, expected);
    }
}

void check_trees(const std::vector<esp::Variable>& results) {
  const std::vector<FusedCase> cases = fused_cases(results);
  for (const FusedCase& c : cases) BOOST_TEST_CONTEXT(c.program().str()) check_case(c);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_fused, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(kernels_of_every_form_compute_what_the_cpu_does) {
  check_trees(trees_to_fuse(esp::float32, {7, 12, 100, 768, 4100}));
  check_trees(trees_to_fuse(esp::float64, {64}));
}

BOOST_AUTO_TEST_CASE(random_trees) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    FuzzTree tree(seed);
    std::vector<esp::Variable> results{tree.root};
    for (const esp::Variable& p : tree.parameters) try {
        results.push_back(tree.root.gradient(p));
      } catch (const esp::Error&) {  // the root does not depend on it
      }
    BOOST_TEST_CONTEXT("seed " << seed) check_trees(results);
  }
}

BOOST_AUTO_TEST_CASE(all_updates_are_one_kernel) {
  std::vector<std::pair<esp::Variable, esp::Variable>> pairs;
  for (const esp::Shape& shape :
       {esp::Shape{30, 70}, esp::Shape{70}, esp::Shape{1}, esp::Shape{}, esp::Shape{5000}}) {
    const auto leaf = [&](const char* name) {
      return esp::parameter(numbers(shape, -1, 1, pairs.size()).to(esp::float32), name);
    };
    pairs.emplace_back(leaf("p"), leaf("g"));
  }
  const esp::optim::Adam adam({.lr = 0.01});
  const auto plan = esp::compile({.value = esp::sum(pairs[0].second), .updates = adam.build(pairs)}, {}, {});
  size_t groups = 0;
  for (const esp::GraphNode& n : plan->graph.nodes) {
    if (n.op->name() != "fused_group") continue;
    ++groups;
    FusedCase c{n.op, {}, n.outputs};
    for (const esp::ValueRef& input : n.inputs) {
      const esp::Spec& spec = plan->graph.spec(input);
      c.inputs.push_back(numbers(spec.shape, 0.1, 1, c.inputs.size()).to(spec.dtype));
    }
    check_case(c);
  }
  BOOST_TEST(groups > 0u);
}

// What is computed in float32 and needed in 16 bits is written in 16 bits by the kernel that computes it.
BOOST_AUTO_TEST_CASE(a_cast_to_16_bits_is_part_of_the_kernel_before_it) {
  const esp::Variable x = esp::parameter(numbers({20, 64}).to(esp::float32), "x"),
                      gain = esp::parameter(numbers({64}, 0.5, 2, 1).to(esp::float32), "gain"),
                      bias = esp::parameter(numbers({64}, -1, 1, 2).to(esp::float32), "bias");
  for (const esp::DType half : {esp::bfloat16, esp::float16}) {
    for (const esp::Variable& y :
         {esp::cast(esp::softmax(x * 2.0), half), esp::cast(esp::layer_norm(x, gain, bias), half),
          esp::cast(esp::cast(esp::exp(x), half), esp::float32) + 1.0}) {
      const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .devices = {esp::gpu()}});
      size_t kernels = 0;
      const std::string text = executor.plan().str();
      executor.execute({.progress = false});
      BOOST_TEST(text.find(" cast ") == std::string::npos, text);
      for (size_t at = text.find("fused"); at != std::string::npos; at = text.find("fused", at + 1))
        ++kernels;
      BOOST_TEST(kernels > 0u, text);
      const double unit = half == esp::bfloat16 ? 1.0 / 128 : 1.0 / 1024;
      BOOST_TEST(difference(executor.value().to(esp::cpu()).to(esp::float64), y.value().to(esp::float64)) <
                 8 * unit);
      // Rounded as the CPU rounds, up to the last bit of what is rounded.
      const esp::Tensor found = executor.value().to(esp::cpu()).to(esp::float64).contiguous_copy(),
                        expected = y.value().to(esp::float64).contiguous_copy();
      int64_t different = 0;
      for (size_t i = 0; i < 20 * 64; ++i) different += found.span<double>()[i] != expected.span<double>()[i];
      BOOST_TEST(different < 20);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
