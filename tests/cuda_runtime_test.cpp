// The CUDA runtime layer: streams and the order of memory accesses between them, pinned buffers, and errors
// that are reported at the next synchronization. Built with CUDA; runs nothing without a GPU.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/cuda/pinned.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/cuda/value_errors.h"
#include "espalier/core/cuda_stream.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
namespace cu = espalier::cu;
using namespace espalier::testing;

namespace {

constexpr int64_t n = 100'000;

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_runtime, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(errors_have_their_types) {
  BOOST_CHECK_NO_THROW(cu::check(cudaSuccess, "nothing"));
  BOOST_CHECK_EXCEPTION(cu::check(cudaErrorMemoryAllocation, "asking"), esp::OutOfMemory, says({"asking"}));
  BOOST_CHECK_EXCEPTION(cu::check(cudaErrorInvalidValue, "asking"), esp::DeviceError,
                        says({"asking failed (cudaErrorInvalidValue: "}));
}

BOOST_AUTO_TEST_CASE(streams_replace_the_eager_one_for_a_scope) {
  const cudaStream_t eager = cu::eager_stream();
  BOOST_TEST((cu::current_stream() == eager));
  const cu::Stream a, b;
  {
    const cu::StreamScope outer(a.get());
    BOOST_TEST((cu::current_stream() == a.get()));
    {
      const cu::StreamScope inner(b.get());
      BOOST_TEST((cu::current_stream() == b.get()));
      BOOST_TEST((cu::eager_stream() == eager));
    }
    BOOST_TEST((cu::current_stream() == a.get()));
    BOOST_TEST((cu::stream_instead_of_eager(cu::current_device() + 1) == nullptr));
  }
  BOOST_TEST((cu::current_stream() == eager));
  BOOST_TEST(cu::limits().multiprocessors > 0);
}

BOOST_AUTO_TEST_CASE(custom_ops_launch_in_the_stream_of_their_evaluation) {
  BOOST_TEST((esp::cuda_stream() == cu::eager_stream()));
  std::vector<cudaStream_t> streams;
  const esp::CustomOp copy =
      esp::custom_op({.name = "copy",
                      .forward =
                          [&](const std::vector<esp::Tensor>& in) {
                            const esp::Tensor& x = in[0];
                            if (x.device().type == esp::DeviceType::cpu) return x;  // infers the shape
                            esp::Tensor out(x.shape(), x.dtype(), x.device());
                            streams.push_back(esp::cuda_stream(x.device()));
                            cu::check(cudaMemcpyAsync(out.address(), x.address(), x.bytes(),
                                                      cudaMemcpyDeviceToDevice, streams.back()),
                                      "copying");
                            return out;
                          },
                      .takes_device_tensors = true});
  const esp::Variable x = esp::placeholder("x", {n});
  const esp::Variable y = copy({x * 2.0}) + 1.0;
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .devices = {esp::gpu()}});
  for (int step = 0; step < 4; ++step) {
    streams.clear();
    const esp::Tensor planned = executor.run({{"x", esp::full({n}, step)}});
    BOOST_TEST(difference(planned.to(esp::cpu()), esp::full({n}, 2 * step + 1)) == 0);
    BOOST_TEST_REQUIRE(streams.size() == 1u);
    BOOST_TEST((streams[0] != cu::eager_stream()));  // the plan's
  }
  const esp::Variable eager = copy({esp::Variable(esp::ones({n}).to(esp::gpu())) * 2.0}) + 1.0;
  BOOST_TEST(difference(eager.value().to(esp::cpu()), esp::full({n}, 3)) == 0);
  BOOST_TEST((streams.back() == cu::eager_stream()));
}

BOOST_AUTO_TEST_CASE(events_order_streams) {
  cu::Stream first, second;
  cu::Event event(true), done(true);
  event.record(first.get());
  second.wait(event);
  done.record(second.get());
  done.synchronize();
  BOOST_TEST(done.milliseconds_since(event) >= 0);
}

BOOST_AUTO_TEST_CASE(memory_given_back_in_another_stream_is_not_written_by_it_later) {
  const esp::Tensor ones = esp::ones({n});
  const cu::Stream side;
  for (int i = 0; i < 3; ++i) {
    void* address = nullptr;
    {
      const cu::StreamScope scope(side.get());
      esp::Tensor scratch({n}, esp::float32, esp::gpu());
      esp::zero_elements(scratch);
      address = scratch.address();
    }
    esp::Tensor next({n}, esp::float32, esp::gpu());
    BOOST_TEST(next.address() == address);
    esp::copy_elements(ones, next);
    BOOST_TEST(difference(next.to(esp::cpu()), ones) == 0);
    side.synchronize();
    BOOST_TEST(difference(next.to(esp::cpu()), ones) == 0);
  }
}

BOOST_AUTO_TEST_CASE(memory_taken_in_another_stream_is_not_read_too_late) {
  const esp::Tensor ones = esp::ones({n});
  const cu::Stream side;
  esp::Tensor copy({n}, esp::float32, esp::gpu());
  void* address = nullptr;
  {
    const esp::Tensor source = ones.to(esp::gpu());
    esp::synchronize(esp::gpu());
    esp::copy_elements(source, copy);
    address = source.address();
  }
  {
    const cu::StreamScope scope(side.get());
    esp::Tensor scratch({n}, esp::float32, esp::gpu());
    BOOST_TEST(scratch.address() == address);
    esp::zero_elements(scratch);
    side.synchronize();
  }
  BOOST_TEST(difference(copy.to(esp::cpu()), ones) == 0);
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_during_capture) {
  const cu::Stream side;
  const esp::Tensor before({4}, esp::float32, esp::gpu());
  cu::check(cudaStreamBeginCapture(side.get(), cudaStreamCaptureModeThreadLocal), "capturing");
  {
    const cu::StreamScope scope(side.get());
    BOOST_CHECK_EXCEPTION(esp::Tensor({4}, esp::float32, esp::gpu()), esp::Error, says({"capture"}));
  }
  cudaGraph_t graph = nullptr;
  cu::check(cudaStreamEndCapture(side.get(), &graph), "capturing");
  cu::check(cudaGraphDestroy(graph), "letting go of a graph");
}

BOOST_AUTO_TEST_CASE(pinned_buffers_may_be_written_after_a_copy) {
  cu::PinnedBuffer buffer(n * sizeof(float));
  BOOST_TEST(buffer.bytes() == n * sizeof(float));
  std::fill_n(buffer.as<float>(), n, 3.0f);
  esp::Tensor target({n}, esp::float32, esp::gpu());
  esp::backend(esp::gpu()).copy_from_host(target.address(), buffer.data(), buffer.bytes(), esp::gpu());
  std::fill_n(buffer.as<float>(), n, 4.0f);
  BOOST_TEST(difference(target.to(esp::cpu()), esp::full({n}, 3)) == 0);
  const cu::PinnedBuffer moved = std::move(buffer);
  BOOST_TEST(moved.as<float>()[n - 1] == 4.0f);
  BOOST_TEST(cu::PinnedBuffer().data() == nullptr);
}

BOOST_AUTO_TEST_CASE(recorded_indices_are_thrown_at_the_line_of_their_op) {
  esp::Tensor x = esp::ones({3}).to(esp::gpu());
  const esp::CallSite where(std::source_location::current());
  esp::KernelCall call;
  call.outputs.push_back(&x);
  call.where = &where;
  const cu::ValueReport other = cu::value_report(call, "pick"), report = cu::value_report(call, "gather");
  BOOST_TEST(cu::value_report(call, "gather").site == report.site);
  BOOST_TEST(other.site != report.site);
  BOOST_CHECK_NO_THROW(esp::synchronize(esp::gpu()));
  const auto record = [&](unsigned int complete) { *report.record = {complete, report.site, 7, 3}; };
  const auto message = says({"gather: index 7 is outside an axis of size 3",
                             "cuda_runtime_test.cpp:" + std::to_string(where.line())});
  record(1);
  BOOST_CHECK_EXCEPTION(esp::synchronize(esp::gpu()), esp::IndexError, message);
  record(1);
  BOOST_CHECK_EXCEPTION(x.to(esp::cpu()), esp::IndexError, message);
  BOOST_CHECK_NO_THROW(x.to(esp::cpu()));
  record(0);  // found but not complete
  BOOST_CHECK_NO_THROW(esp::synchronize(esp::gpu()));
}

BOOST_AUTO_TEST_SUITE_END()
