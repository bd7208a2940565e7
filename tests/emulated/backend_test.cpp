// What only an emulated device tells of the CUDA backend: contexts, captures that others disturb, and devices
// that are full.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "emulated_cuda.h"
#include "espalier/core/cuda/pinned.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/node.h"
#include "espalier/executor/runtime/cuda/session.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"
#include "espalier/ops/matmul/cuda/measuring.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "gpu_testing.h"
#include "replica_programs.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

struct DevicesAlone {
  DevicesAlone() { another_program_tests_cpu = true; }
};
BOOST_TEST_GLOBAL_FIXTURE(DevicesAlone);

/// Calls `f` in a thread of its own, whose current device is the first one.
template <class F>
void in_a_new_thread(F&& f) {
  std::async(std::launch::async, std::forward<F>(f)).get();
}

/// The number of lines in the files of measured choices.
int64_t choices() {
  int64_t count = 0;
  const auto folder = gemm_choices_file().parent_path();
  if (!std::filesystem::exists(folder)) return count;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("cublaslt_")) continue;
    const std::string text = read_file(entry.path());
    count += std::count(text.begin(), text.end(), '\n');
  }
  return count;
}

/// Binds and runs a measured product of [rows, inner] and [inner, rows]; returns its greatest error.
double measured_product(int64_t rows, int64_t inner, Device device) {
  const cu::DeviceScope scope(device.index);
  const Tensor a = ones({rows, inner}).to(device), b = ones({inner, rows}).to(device);
  Tensor out({rows, rows}, float32, device);
  const cu::MeasuringScope measuring;
  cu::LtProduct product(a, b, out, {});
  product.run();
  return difference(out.to(cpu()), full({rows, rows}, static_cast<double>(inner)));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_host, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(devices_that_are_not_used_get_no_context) {
  emulated::forget_contexts();
  std::optional<Executor> executor;
  std::optional<TestNetwork> network;
  Tensor eager;
  std::optional<cu::PinnedBuffer> pinned;
  std::optional<cu::Stream> stream;
  std::optional<cu::Event> event;
  in_a_new_thread([&] {
    eager = exp(Variable(ones({1000}).to(gpu(1)))).value();
    (void)eager.to(cpu());
    network.emplace(NetworkOptions{});
    executor = network->loss.get_executor({.optimizer = optimizer_of(7), .devices = {gpu(1)}});
    (void)executor->execute({.epochs = 2, .progress = false});
    const cu::DeviceScope scope(1);
    pinned.emplace(100);
    stream.emplace();
    event.emplace();
  });
  const std::function<void()> uses[] = {
      [&] { stream->synchronize(); },
      [&] { event->synchronize(); },
      [&] { stream.reset(); },
      [&] { event.reset(); },
      [&] { pinned.reset(); },
      [&] { (void)executor->execute({.progress = false}); },
      [&] { executor.reset(); },
      [&] { network.reset(); },
      [&] { eager = Tensor(); },
      [] { synchronize(gpu(1)); },
      [] { release_cached_memory(gpu(1)); },
  };
  for (size_t i = 0; i < std::size(uses); ++i) BOOST_TEST_CONTEXT("use " << i) {
      in_a_new_thread(uses[i]);
      BOOST_TEST(!emulated::has_context(0));
    }
  BOOST_TEST(emulated::has_context(1));
}

BOOST_AUTO_TEST_CASE(the_user_s_current_device_stays) {
  in_a_new_thread([] {
    cu::check(cudaSetDevice(0), "cudaSetDevice");
    BOOST_TEST(exp(Variable(zeros({3}).to(gpu(1)))).value().to(cpu()).at<float>({2}) == 1);
    int device = -1;
    cu::check(cudaGetDevice(&device), "cudaGetDevice");
    BOOST_TEST(device == 0);
  });
}

BOOST_AUTO_TEST_CASE(other_threads_may_wait_for_a_device_during_a_capture) {
  const Trace undisturbed = train_network({.devices = {gpu()}});
  const std::function<void()> actions[] = {
      [] { synchronize(gpu()); },
      [] { release_cached_memory(gpu()); },
      [] {
        emulated::fail_next("cudaMalloc", 1, cudaErrorMemoryAllocation);
        BOOST_TEST(Tensor({int64_t{3} << 22}, float32, gpu()).defined());
      },
      [] { (void)measured_product(31, 17, gpu()); },
  };
  for (size_t i = 0; i < std::size(actions); ++i) BOOST_TEST_CONTEXT("action " << i) {
      release_cached_memory(gpu());
      std::future<void> other;
      emulated::before_next("cudaStreamEndCapture", [&] {
        other = std::async(std::launch::async, actions[i]);
        other.wait_for(std::chrono::milliseconds(50));
      });
      BOOST_TEST(difference_of(train_network({.devices = {gpu()}}), undisturbed) == 0);
      BOOST_REQUIRE(other.valid());
      BOOST_CHECK_NO_THROW(other.get());
    }
}

BOOST_AUTO_TEST_CASE(a_capture_that_foreign_code_invalidates_is_made_again) {
  const Trace undisturbed = train_network({.devices = {gpu()}});
  for (const char* call : {"cudaStreamEndCapture", "cudaLaunchKernel"}) BOOST_TEST_CONTEXT(call) {
      cudaError_t status = cudaSuccess;
      emulated::before_next("cudaStreamBeginCapture", [&] {
        emulated::before_next(call, [&] { in_a_new_thread([&] { status = cudaDeviceSynchronize(); }); });
      });
      BOOST_TEST(difference_of(train_network({.devices = {gpu()}}), undisturbed) == 0);
      BOOST_TEST(status == cudaErrorStreamCaptureUnsupported);
    }
}

BOOST_AUTO_TEST_CASE(a_product_that_cannot_be_measured_for_want_of_memory_takes_the_first_suggestion) {
  constexpr int64_t rows = 4, inner = 700'000;  // 11.2 MB for each operand
  (void)measured_product(5, 6, gpu());          // makes the workspace
  release_cached_memory(gpu());
  const int64_t before = choices();
  size_t free = 0, total = 0;
  cu::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const size_t room = 28 << 20;  // two operands
  setenv("ESPALIER_EMULATED_MEMORY", std::to_string(total - free + room).c_str(), 1);
  emulated::reset();
  BOOST_CHECK_NO_THROW(BOOST_TEST(measured_product(rows, inner, gpu()) == 0));
  unsetenv("ESPALIER_EMULATED_MEMORY");
  emulated::reset();
  BOOST_TEST(choices() == before);
}

BOOST_AUTO_TEST_CASE(products_of_two_devices_do_not_wait_for_each_other_s_devices) {
  std::future<double> other;
  emulated::before_next("cudaDeviceSynchronize", [&] {
    other = std::async(std::launch::async, [] { return measured_product(37, 11, gpu(1)); });
    BOOST_TEST((other.wait_for(std::chrono::seconds(5)) == std::future_status::ready));
  });
  BOOST_TEST(measured_product(41, 11, gpu()) == 0);
  BOOST_REQUIRE(other.valid());
  BOOST_TEST(other.get() == 0);
}

BOOST_AUTO_TEST_CASE(profilers_see_the_names_of_ops) {
  emulated::record_ranges();
  (void)exp(Variable(ones({100}).to(gpu()))).value();
  std::vector<std::string> ranges = emulated::recorded_ranges();
  BOOST_TEST(std::ranges::count(ranges, "Espalier/exp") == 1);
  emulated::record_ranges();
  (void)train_network({.devices = {gpu()}, .launch = Launch::stream});
  ranges = emulated::recorded_ranges();
  BOOST_TEST(std::ranges::count(ranges, "Espalier/step") > 1);
  BOOST_TEST(std::ranges::count(ranges, "Espalier/step/fused") > 1);
  (void)exp(Variable(ones({100}).to(gpu()))).value();
  BOOST_TEST(emulated::recorded_ranges().empty());  // not recorded any more
}

BOOST_AUTO_TEST_CASE(the_steps_of_a_recurrence_are_one_launch) {
  const auto launches = [](int64_t steps, int64_t width) {
    const auto leaf = [](const Shape& shape) { return variable(zeros(shape).to(gpu())); };
    const Variable x = leaf({steps, 3, 4 * width}), h = leaf({3, width}), c = leaf({3, width});
    const RecurrenceOutputs out = recurrence({x, leaf({4 * width, width}), h, c}, {});
    (void)out.h.value();
    const uint64_t before = emulated::counters().launches;
    (void)sum(out.h).gradient(x).value();
    return emulated::counters().launches - before;
  };
  BOOST_TEST(launches(9, 16) == launches(4, 16));
  BOOST_TEST(launches(9, 17) > launches(4, 17));  // rows that are not aligned
}

BOOST_AUTO_TEST_CASE(feeds_do_not_wait_for_each_other_s_copies) {
  cu::CudaSession session(gpu(), Launch::graph);
  const Variable x = placeholder("x", {3}), y = placeholder("y", {3});
  const Feed &first = **x.node()->op().feed(), &second = **y.node()->op().feed();
  const cu::DeviceScope scope(0);
  session.batch_loading(first);
  const uint64_t before = emulated::counters().synchronizations;
  session.release_batches(second);
  BOOST_TEST(emulated::counters().synchronizations == before);
  session.release_batches(first);
  BOOST_TEST(emulated::counters().synchronizations == before + 1);
}

BOOST_AUTO_TEST_SUITE_END()
