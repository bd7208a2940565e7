// cuBLASLt: epilogues, alpha and beta, captures, and the choice of algorithms.
#include <boost/test/unit_test.hpp>

#include <array>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"
#include "espalier/ops/matmul/cuda/measuring.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/matmul/tuning.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
namespace cu = espalier::cu;
using namespace espalier::testing;

namespace {

constexpr int64_t m = 9, n = 12, k = 7;

/// A product of [m, k] and [k, n], its operands on the GPU.
struct Case {
  explicit Case(esp::DType dtype = esp::float32)
      : a(numbers({m, k}, -2, 2, 1).to(dtype)),
        b(numbers({k, n}, -2, 2, 2).to(dtype)),
        bias(numbers({n}, -2, 2, 3).to(dtype)),
        x(a.to(esp::gpu())),
        y(b.to(esp::gpu())),
        vector(bias.to(esp::gpu())),
        out({m, n}, dtype, esp::gpu()),
        product(esp::matmul(a, b).value()) {}

  esp::Tensor run(const cu::LtOptions& options) {
    cu::LtProduct call(x, y, out, {}, options);
    BOOST_REQUIRE(call.supported());
    call.run();
    return out.to(esp::cpu());
  }

  esp::Tensor a, b, bias, x, y, vector, out, product;
};

constexpr double tolerance = 1e-5;

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_lt, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(bias_and_relu) {
  Case c;
  const esp::Variable p(c.product);
  using cu::LtEpilogue;
  BOOST_TEST(difference(c.run({.epilogue = LtEpilogue::bias, .vector = c.vector.address()}),
                        (p + c.bias).value()) < tolerance);
  BOOST_TEST(difference(c.run({.epilogue = LtEpilogue::bias_relu, .vector = c.vector.address()}),
                        esp::relu(p + c.bias).value()) < tolerance);
  BOOST_TEST(difference(c.run({.epilogue = LtEpilogue::relu}), esp::relu(p).value()) < tolerance);
}

BOOST_AUTO_TEST_CASE(masks_of_relu_and_its_gradient) {
  Case c;
  using cu::LtEpilogue;
  for (const bool with_bias : {false, true}) {
    const esp::Tensor mask({m * cu::lt_mask_row(n) / 8}, esp::boolean, esp::gpu());
    const esp::Variable before = with_bias ? esp::Variable(c.product) + c.bias : esp::Variable(c.product);
    const auto epilogue = with_bias ? LtEpilogue::bias_relu_mask : LtEpilogue::relu_mask;
    const esp::Tensor y = c.run(
        {.epilogue = epilogue, .vector = with_bias ? c.vector.address() : nullptr, .mask = mask.address()});
    BOOST_TEST(difference(y, esp::relu(before).value()) < tolerance);

    // A gradient [m, k] times [k, n], where y was positive.
    Case g;
    const esp::Tensor expected =
        esp::where(esp::greater(y, 0.0), g.product, esp::zeros_like(esp::Variable(g.product))).value();
    BOOST_TEST(difference(g.run({.epilogue = LtEpilogue::masked, .mask = mask.address()}), expected) <
               tolerance);
    const esp::Tensor sums({n}, esp::float32, esp::gpu());
    const esp::Tensor masked =
        g.run({.epilogue = LtEpilogue::masked_sums, .vector = sums.address(), .mask = mask.address()});
    BOOST_TEST(difference(masked, expected) < tolerance);
    BOOST_TEST(difference(sums.to(esp::cpu()), esp::sum(expected, 0).value()) < tolerance);
  }
}

BOOST_AUTO_TEST_CASE(factors_on_host_and_device) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    Case c(dtype);
    const esp::Tensor start = numbers({m, n}, -2, 2, 5).to(dtype), added = start.to(esp::gpu());
    const esp::Tensor expected = (esp::Variable(c.product) * 0.5 + esp::Variable(start) * -2.0).value();
    BOOST_TEST(difference(c.run({.alpha = 0.5, .beta = -2, .added = added.address()}), expected) < tolerance);
    const esp::Tensor alpha = esp::full({}, 0.5, dtype).to(esp::gpu());
    const esp::Tensor beta = esp::full({}, -2, dtype).to(esp::gpu());
    BOOST_TEST(
        difference(
            c.run({.added = added.address(), .device_alpha = alpha.address(), .device_beta = beta.address()}),
            expected) < tolerance);
    esp::copy_elements(added, c.out);  // in place
    BOOST_TEST(difference(c.run({.alpha = 0.5, .beta = -2}), expected) < tolerance);
  }
}

BOOST_AUTO_TEST_CASE(heads_of_a_sequence_are_one_launch) {
  // Heads lie beside each other in the rows of a sequence, so that sequences and heads are no single axis.
  constexpr int64_t sequences = 8, steps = 4, heads = 9, width = 6;
  const auto heads_of = [](uint64_t which, esp::Device device) {
    const esp::Tensor rows = numbers({sequences, steps, heads, width}, -1, 1, which).to(device);
    return esp::transpose(esp::Variable(rows), {0, 2, 1, 3}).value();
  };
  const esp::Tensor a = heads_of(1, esp::gpu()), b = heads_of(2, esp::gpu());
  BOOST_TEST(!a.contiguous());
  esp::Tensor out({sequences, heads, steps, steps}, esp::float64, esp::gpu());
  cu::LtProduct product(a, b, out, {false, true});
  BOOST_TEST(product.launches() == 1u);
  product.run();
  const esp::Variable expected =
      esp::matmul(heads_of(1, esp::cpu()), esp::transpose(esp::Variable(heads_of(2, esp::cpu()))));
  BOOST_TEST(difference(out.to(esp::cpu()), expected.value()) < 1e-13);

  // The plan has room for the copies.
  const esp::Spec of_a = a.spec(), of_b = b.spec(), of_out = out.spec();
  const esp::PlannedCall call{
      esp::DeviceType::cuda, {&of_a, &of_b}, {&a.layout(), &b.layout()}, {&of_out, 1}};
  BOOST_TEST(esp::product_workspace_bytes(call, {false, true}, out.shape()) ==
             2 * esp::Workspace::bytes_for(of_a));
}

BOOST_AUTO_TEST_CASE(epilogues_are_for_single_products) {
  const esp::Tensor a = numbers({2, 3, 4}).to(esp::gpu()), b = numbers({2, 4, 5}).to(esp::gpu());
  const esp::Tensor w = numbers({4, 5}).to(esp::gpu()), bias = numbers({5}, -2, 2, 4);
  const esp::Tensor vector = bias.to(esp::gpu());
  esp::Tensor out({2, 3, 5}, esp::float64, esp::gpu());
  const cu::LtOptions options{.epilogue = cu::LtEpilogue::bias, .vector = vector.address()};
  BOOST_TEST(!cu::LtProduct(a, b, out, {}, options).supported());
  cu::LtProduct one(a, w, out, {}, options);  // one product with all rows
  BOOST_TEST(one.launches() == 1u);
  if (!one.supported()) return;
  one.run();
  const esp::Variable expected = esp::matmul(a.to(esp::cpu()), w.to(esp::cpu())) + bias;
  BOOST_TEST(difference(out.to(esp::cpu()), expected.value()) < 1e-13);
}

BOOST_AUTO_TEST_CASE(as_few_launches_as_strides_allow) {
  const auto launches = [](const esp::Shape& a, const esp::Shape& b, const esp::Shape& out) {
    const esp::Tensor x = esp::zeros(a).to(esp::gpu()), y = esp::zeros(b).to(esp::gpu());
    esp::Tensor z(out, esp::float32, esp::gpu());
    return cu::LtProduct(x, y, z, {}).launches();
  };
  BOOST_TEST(launches({5, 3, 2, 4}, {5, 3, 4, 5}, {5, 3, 2, 5}) == 1u);
  BOOST_TEST(launches({5, 3, 2, 4}, {4, 5}, {5, 3, 2, 5}) == 1u);
  BOOST_TEST(launches({2, 4}, {5, 3, 4, 5}, {5, 3, 2, 5}) == 1u);
  BOOST_TEST(launches({5, 3, 2, 4}, {3, 4, 5}, {5, 3, 2, 5}) == 3u);
  BOOST_TEST(launches({5, 1, 2, 4}, {1, 3, 4, 5}, {5, 3, 2, 5}) == 3u);
}

BOOST_AUTO_TEST_CASE(captured_products_allocate_nothing) {
  Case c;
  const cu::DeviceScope device(0);
  esp::synchronize(esp::gpu());
  cu::Stream stream;
  const cu::StreamScope scope(stream.get());
  cu::LtProduct product(c.x, c.y, c.out, {},
                        {.epilogue = cu::LtEpilogue::bias, .vector = c.vector.address()});
  const int64_t before = esp::memory_stats(esp::gpu()).allocations;
  cu::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "a capture");
  product.run();
  cudaGraph_t graph = nullptr;
  cu::check(cudaStreamEndCapture(stream.get(), &graph), "a capture");
  BOOST_TEST(esp::memory_stats(esp::gpu()).allocations == before);
  size_t nodes = 0;
  cu::check(cudaGraphGetNodes(graph, nullptr, &nodes), "a graph's nodes");
  BOOST_TEST(nodes == 1u);
  cudaGraphExec_t executable = nullptr;
  cu::check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
  esp::zero_elements(c.out);
  cu::check(cudaGraphLaunch(executable, stream.get()), "a graph");
  stream.synchronize();
  BOOST_TEST(difference(c.out.to(esp::cpu()), (esp::Variable(c.product) + c.bias).value()) < tolerance);
  (void)cudaGraphExecDestroy(executable);
  (void)cudaGraphDestroy(graph);
}

BOOST_AUTO_TEST_CASE(each_stream_has_its_workspace) {
  const cu::DeviceScope device(0);
  const esp::Tensor eager = cu::lt_workspace();
  BOOST_TEST(cu::lt_workspace().address() == eager.address());
  cu::Stream stream;
  const cu::StreamScope scope(stream.get());
  const esp::Tensor own = cu::lt_workspace();
  BOOST_TEST(own.address() != eager.address());
  BOOST_TEST(cu::lt_workspace().address() == own.address());
}

BOOST_AUTO_TEST_CASE(measured_algorithms_are_kept) {
  const auto folder = esp::gemm_choices_file().parent_path();
  const auto lines = [&] {
    int64_t count = 0;
    if (!std::filesystem::exists(folder)) return count;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("cublaslt_")) continue;
      const std::string text = esp::read_file(entry.path());
      count += std::count(text.begin(), text.end(), '\n');
    }
    return count;
  };
  const esp::Tensor a = numbers({21, 10}), b = numbers({10, 33}, -2, 2, 1);
  const esp::Tensor x = a.to(esp::gpu()), y = b.to(esp::gpu());
  const esp::Tensor expected = esp::matmul(a, b).value();
  esp::Tensor out({21, 33}, esp::float64, esp::gpu());
  const auto run = [&] {
    cu::LtProduct product(x, y, out, {});
    product.run();
    BOOST_TEST(difference(out.to(esp::cpu()), expected) < 1e-13);
  };
  const int64_t before = lines();
  run();
  BOOST_TEST(lines() == before);
  const cu::MeasuringScope measuring;
  const auto run_untuned = [&] {
    const esp::TuneScope no_tuning(false);
    run();
  };
  run_untuned();
  BOOST_TEST(lines() == before);
  run();
  const int64_t after = lines();
  BOOST_TEST(after > before);
  run();
  run_untuned();
  BOOST_TEST(lines() == after);
}

BOOST_AUTO_TEST_CASE(tf32_where_it_is_allowed) {
  Case c;
  const esp::MatmulPrecisionScope scope(esp::MatmulPrecision::tf32);
  const double off = difference(c.run({}), c.product);
  BOOST_TEST(off < 1e-2);
  Case wide(esp::float64);
  BOOST_TEST(difference(wide.run({}), wide.product) < 1e-13);
}

BOOST_AUTO_TEST_SUITE_END()
