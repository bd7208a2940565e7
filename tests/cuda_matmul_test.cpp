// Matrix products on a GPU against those of the CPU: transposes, batches, layouts and epilogues.
#include <boost/test/unit_test.hpp>

#include <array>

#include "espalier/core/bind_context.h"
#include "espalier/core/error.h"
#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A view with the last two axes swapped.
esp::Tensor transposed(const esp::Tensor& x) {
  esp::Layout layout = x.layout();
  const size_t n = layout.strides.size();
  std::swap(layout.shape.dims()[n - 1], layout.shape.dims()[n - 2]);
  std::swap(layout.strides[n - 1], layout.strides[n - 2]);
  return esp::Tensor(x.storage(), layout, x.dtype());
}

/// Every second column of a larger tensor: a GEMM cannot read such rows.
esp::Tensor every_second(const esp::Tensor& x) {
  esp::Shape wide = x.shape();
  wide.dims()[wide.rank() - 1] *= 2;
  esp::Tensor all = esp::zeros(wide, x.dtype());
  esp::Layout layout = all.layout();
  layout.shape = x.shape();
  layout.strides[x.rank() - 1] = 2;
  esp::Tensor result(all.storage(), layout, x.dtype());
  esp::copy_elements(x, result);
  return result;
}

/// Columns 1 to n of n + 3: rows with gaps, and an address of odd alignment.
esp::Tensor inside(const esp::Tensor& x) {
  esp::Shape wide = x.shape();
  wide.dims()[wide.rank() - 1] += 3;
  esp::Tensor result = esp::zeros(wide, x.dtype()).slice(-1, 1, 1 + x.shape()[-1]);
  esp::copy_elements(x, result);
  return result;
}

esp::Tensor as_it_is(const esp::Tensor& x) { return x; }
esp::Tensor by_columns(const esp::Tensor& x) { return transposed(transposed(x).contiguous_copy()); }
constexpr esp::Tensor (*arrangements[])(const esp::Tensor&) = {as_it_is, inside, by_columns, every_second};

esp::Tensor product_on_gpu(const esp::Tensor& a, const esp::Tensor& b, const esp::Shape& shape,
                           esp::MatmulForm form) {
  const esp::Tensor x = on_gpu(a), y = on_gpu(b);
  esp::Tensor out(shape, a.dtype(), esp::gpu());
  esp::KernelCall call;
  call.inputs = {&x, &y};
  call.outputs = {&out};
  const auto kernel = esp::bind_kernel(*esp::matmul_op(form), call);
  kernel->run({});
  kernel->run({});  // the old contents do not matter
  return out.to(esp::cpu());
}

/// Checks a product with operands in all layouts.
void check_product(const esp::Shape& a, const esp::Shape& b, esp::DType dtype) {
  const auto rounded = [&](const esp::Tensor& all) { return all.to(dtype).to(esp::float64); };
  const esp::Tensor x = rounded(numbers(a, -2, 2, 1)), y = rounded(numbers(b, -2, 2, 2));
  const double tolerance = dtype == esp::float64 ? 1e-13 : dtype == esp::float32 ? 1e-5 : 1e-2;
  const esp::Tensor expected = esp::matmul(x, y).value();
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto arrange_a : arrangements)
        for (const auto arrange_b : arrangements) {
          const esp::Tensor p = (ta ? transposed(x) : x).to(dtype), q = (tb ? transposed(y) : y).to(dtype);
          const esp::Tensor result = product_on_gpu(arrange_a(p), arrange_b(q), expected.shape(), {ta, tb});
          BOOST_TEST(difference(result.to(esp::float64), expected) < tolerance,
                     a << " times " << b << " transposed " << ta << tb);
        }
}

/// Binds an op to copies of `inputs` on the GPU; returns all outputs after two runs.
std::vector<esp::Tensor> run_on_gpu(const esp::Op& op, const std::vector<esp::Tensor>& inputs,
                                    const std::vector<esp::Spec>& outputs) {
  std::vector<esp::Tensor> in, out, result;
  for (const esp::Tensor& x : inputs) in.push_back(on_gpu(x));
  for (const esp::Spec& spec : outputs) out.emplace_back(spec.shape, spec.dtype, esp::gpu());
  esp::KernelCall call;
  for (const esp::Tensor& x : in) call.inputs.push_back(&x);
  for (esp::Tensor& x : out) call.outputs.push_back(&x);
  const auto kernel = esp::bind_kernel(op, call);
  kernel->run({});
  kernel->run({});
  for (const esp::Tensor& x : out) result.push_back(x.to(esp::cpu()));
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_matmul, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(transposes_and_layouts) {
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
    for (const auto& [m, k, n] :
         {std::array<int64_t, 3>{2, 3, 4}, {1, 5, 1}, {3, 1, 2}, {1, 1, 1}, {7, 2, 1}, {33, 17, 20}})
      check_product({m, k}, {k, n}, dtype);
}

BOOST_AUTO_TEST_CASE(batches) {
  for (const auto& [a, b] : {std::pair<esp::Shape, esp::Shape>{{3, 2, 4}, {3, 4, 5}},
                             {{3, 2, 4}, {4, 5}},
                             {{2, 4}, {3, 4, 5}},
                             {{2, 3, 2, 4}, {2, 3, 4, 5}},
                             {{2, 1, 2, 4}, {1, 3, 4, 5}},
                             {{1, 3, 2, 4}, {2, 1, 4, 5}},
                             {{2, 3, 2, 4}, {3, 4, 5}},
                             {{2, 3, 2, 4}, {2, 1, 4, 5}},
                             {{2, 1, 3, 2, 4}, {1, 4, 1, 4, 5}},
                             {{4, 1, 4}, {4, 4, 1}}})
    check_product(a, b, esp::float32);
}

BOOST_AUTO_TEST_CASE(more_than_one_launch_takes) {
  const esp::Tensor a = numbers({65539, 1, 2}, -2, 2, 1), b = numbers({65539, 2, 1}, -2, 2, 2);
  BOOST_TEST(difference(product_on_gpu(a, b, {65539, 1, 1}, {}), esp::matmul(a, b).value()) < 1e-13);
}

BOOST_AUTO_TEST_CASE(nothing_to_sum_up_and_nothing_at_all) {
  const esp::Tensor zero = product_on_gpu(esp::zeros({2, 0}), esp::zeros({0, 3}), {2, 3}, {});
  BOOST_TEST(difference(zero, esp::zeros({2, 3})) == 0);
  BOOST_TEST(product_on_gpu(esp::zeros({0, 2}), esp::zeros({2, 3}), {0, 3}, {}).elements() == 0);
  BOOST_TEST(product_on_gpu(esp::zeros({0, 4, 2}), esp::zeros({2, 3}), {0, 4, 3}, {}).elements() == 0);
}

BOOST_AUTO_TEST_CASE(updates) {
  const esp::Tensor p = numbers({6, 5}, -2, 2, 1), a = numbers({7, 6}, -2, 2, 2),
                    b = numbers({7, 5}, -2, 2, 3);
  const esp::MatmulUpdate op({true, false});
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const esp::Tensor rate = esp::full({}, 0.25, dtype);
    const auto expected = (esp::Variable(p) - esp::matmul(esp::transpose(a), b) * 0.25).value();
    const double tolerance = dtype == esp::float64 ? 1e-13 : 1e-5;
    for (const auto arrange : arrangements) {
      const auto result =
          run_on_gpu(op, {arrange(p.to(dtype)), rate, a.to(dtype), b.to(dtype)}, {{dtype, {6, 5}}});
      BOOST_TEST(difference(result[0], expected) < tolerance);
    }
    // In place: two runs are two updates.
    const esp::Tensor x = on_gpu(a.to(dtype)), y = on_gpu(b.to(dtype)), r = on_gpu(rate);
    esp::Tensor q = on_gpu(p.to(dtype));
    esp::KernelCall call;
    call.inputs = {&q, &r, &x, &y};
    call.outputs = {&q};
    const auto kernel = esp::bind_kernel(op, call);
    kernel->run({}), kernel->run({});
    const auto twice = (esp::Variable(p) - esp::matmul(esp::transpose(a), b) * 0.5).value();
    BOOST_TEST(difference(q.to(esp::cpu()), twice) < tolerance);
  }
  const auto same = run_on_gpu(op, {p, esp::full({}, 0.25, esp::float64), numbers({0, 6}), numbers({0, 5})},
                               {{esp::float64, {6, 5}}});
  BOOST_TEST(difference(same[0], p) == 0);
}

BOOST_AUTO_TEST_CASE(programs_over_products) {
  const auto leaf = [](const esp::Shape& shape, uint64_t which, esp::DType dtype) {
    return esp::parameter(numbers(shape, -1.5, 1.5, which).to(dtype), "p");
  };
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const auto a = leaf({12, 7}, 1, dtype), b = leaf({7, 6}, 2, dtype), bias = leaf({6}, 3, dtype);
    const auto wide = leaf({12}, 4, dtype), batch = leaf({3, 12, 7}, 5, dtype),
               several = leaf({3, 7, 6}, 6, dtype);
    const auto product = esp::matmul(a, b);
    for (const esp::Variable& root :
         {product + bias, bias + product, esp::relu(product + bias), esp::tanh(product + bias),
          product * 2.0 + 1.0, esp::relu(esp::reshape(product, {6, 12}) + wide), esp::softmax(product + bias),
          esp::relu(esp::matmul(batch, b) + bias), esp::relu(esp::matmul(batch, several) + bias)}) {
      esp::Graph graph = esp::freeze({root}, {}, {}, false);
      esp::detach_shapes(graph);
      esp::fuse_pointwise(graph);
      BOOST_REQUIRE(esp::fuse_matmul(graph));
      const esp::GraphNode& node = graph.nodes[graph.results[0].node];
      std::vector<esp::Tensor> inputs;
      for (const esp::ValueRef& input : node.inputs) inputs.push_back(graph.nodes[input.node].leaf.value());
      const auto result = run_on_gpu(*node.op, inputs, {node.outputs.begin(), node.outputs.end()});
      BOOST_TEST(difference(result[graph.results[0].output], root.value()) <
                 (dtype == esp::float64 ? 1e-13 : 1e-5));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
