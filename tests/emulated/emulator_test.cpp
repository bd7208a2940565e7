// The emulated device: streams, events, copies, memory and errors.
#define BOOST_TEST_MODULE espalier_emulator
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "cuda.h"
#include "device_buffer.h"
#include "device_region.h"
#include "test_kernels.h"

BOOST_FIXTURE_TEST_SUITE(emulated_streams, Fresh)

BOOST_AUTO_TEST_CASE(work_waits_until_it_is_asked_for) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream stream;
  BOOST_TEST(run(put, 1, 1, stream, 0, x.data(), 5.0f) == cudaSuccess);
  BOOST_TEST(x.now()[0] == 1.0f);  // the legacy stream does not wait for a non-blocking one
  BOOST_TEST(cudaStreamSynchronize(stream) == cudaSuccess);
  BOOST_TEST(x.now()[0] == 5.0f);
}

BOOST_AUTO_TEST_CASE(streams_wait_for_events_only) {
  const DeviceBuffer<float> x(std::vector<float>{1}), y(std::vector<float>{0});
  const Stream a, b;
  const Event event;
  run(put, 1, 1, a, 0, x.data(), 5.0f);
  run(copy_one, 1, 1, b, 0, y.data(), static_cast<const float*>(x.data()));
  BOOST_TEST(cudaStreamSynchronize(b) == cudaSuccess);
  BOOST_TEST(y.now()[0] == 1.0f);  // the wait was missing

  BOOST_TEST(cudaEventRecord(event, a) == cudaSuccess);
  BOOST_TEST(cudaStreamWaitEvent(b, event) == cudaSuccess);
  run(put, 1, 1, a, 0, x.data(), 6.0f);  // after the event
  run(copy_one, 1, 1, b, 0, y.data(), static_cast<const float*>(x.data()));
  BOOST_TEST(cudaStreamSynchronize(b) == cudaSuccess);
  BOOST_TEST(y.now()[0] == 5.0f);
}

BOOST_AUTO_TEST_CASE(eager_execution_can_be_chosen) {
  setenv("ESPALIER_EMULATED_EAGER", "1", 1);
  emulated::reset();
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream stream;
  run(put, 1, 1, stream, 0, x.data(), 5.0f);
  BOOST_TEST(x.now()[0] == 5.0f);
  unsetenv("ESPALIER_EMULATED_EAGER");
}

BOOST_AUTO_TEST_CASE(queries_come_to_an_end) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream stream;
  const Event event;
  BOOST_TEST(cudaEventQuery(event) == cudaSuccess);
  for (int i = 0; i < 5; ++i) run(scale, 1, 1, stream, 0, x.data(), 1, 2.0f);
  cudaEventRecord(event, stream);
  int polls = 0;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++polls;
  BOOST_TEST(polls > 0);
  BOOST_TEST(x.now()[0] == 32.0f);
  BOOST_TEST(cudaStreamQuery(stream) == cudaSuccess);
  BOOST_TEST(cudaGetLastError() == cudaSuccess);
}

BOOST_AUTO_TEST_CASE(blocking_streams_and_the_legacy_stream_wait_for_each_other) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  cudaStream_t blocking = nullptr;
  BOOST_TEST(cudaStreamCreate(&blocking) == cudaSuccess);
  run(put, 1, 1, blocking, 0, x.data(), 5.0f);
  BOOST_TEST(x.now()[0] == 5.0f);
  run(put, 1, 1, nullptr, 0, x.data(), 6.0f);
  run(scale, 1, 1, blocking, 0, x.data(), 1, 2.0f);
  BOOST_TEST(cudaStreamSynchronize(blocking) == cudaSuccess);
  BOOST_TEST(x.now()[0] == 12.0f);
  BOOST_TEST(cudaStreamDestroy(blocking) == cudaSuccess);
  BOOST_TEST(cudaStreamSynchronize(blocking) == cudaErrorInvalidResourceHandle);
}

BOOST_AUTO_TEST_CASE(pinned_memory_is_read_late_and_pageable_memory_at_once) {
  const DeviceBuffer<float> x(1), y(1);
  const Stream stream;
  const Pinned pinned(1);
  float pageable = 1;
  *pinned.data = 1;
  BOOST_TEST(cudaMemcpyAsync(x.data(), pinned.data, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  BOOST_TEST(cudaMemcpyAsync(y.data(), &pageable, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  *pinned.data = 2;
  pageable = 2;
  cudaStreamSynchronize(stream);
  BOOST_TEST(x.now()[0] == 2.0f);
  BOOST_TEST(y.now()[0] == 1.0f);

  run(put, 1, 1, stream, 0, x.data(), 7.0f);
  BOOST_TEST(cudaMemcpyAsync(pinned.data, x.data(), 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  BOOST_TEST(*pinned.data == 2.0f);
  BOOST_TEST(cudaMemcpyAsync(&pageable, x.data(), 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  BOOST_TEST(pageable == 7.0f);  // such a copy waits
  BOOST_TEST(*pinned.data == 7.0f);
}

BOOST_AUTO_TEST_CASE(copies_of_rows_and_between_devices) {
  std::vector<float> values(12), back(6);
  for (size_t i = 0; i < 12; ++i) values[i] = static_cast<float>(i);
  const DeviceBuffer<float> x(values);
  const Stream stream;
  BOOST_TEST(cudaMemcpy2DAsync(back.data(), 8, x.data() + 1, 16, 8, 3, cudaMemcpyDeviceToHost, stream) ==
             cudaSuccess);
  BOOST_TEST(back == (std::vector<float>{1, 2, 5, 6, 9, 10}), boost::test_tools::per_element());
  BOOST_TEST(cudaMemcpy2DAsync(back.data(), 4, x.data(), 16, 8, 3, cudaMemcpyDeviceToHost, stream) ==
             cudaErrorInvalidPitchValue);

  BOOST_TEST(cudaSetDevice(1) == cudaSuccess);
  const DeviceBuffer<float> y(12);
  BOOST_TEST(cudaMemcpyPeerAsync(y.data(), 1, x.data(), 0, 48, nullptr) == cudaSuccess);
  BOOST_TEST(y.values() == values, boost::test_tools::per_element());
  BOOST_TEST(cudaMemcpyPeerAsync(y.data(), 0, x.data(), 1, 48, nullptr) == cudaErrorInvalidValue);
  BOOST_TEST(cudaMemcpy(y.data(), x.data(), 48, cudaMemcpyDefault) == cudaSuccess);
  cudaPointerAttributes attributes;
  BOOST_TEST(cudaPointerGetAttributes(&attributes, y.data() + 3) == cudaSuccess);
  BOOST_TEST(attributes.type == cudaMemoryTypeDevice);
  BOOST_TEST(attributes.device == 1);
  BOOST_TEST(cudaPointerGetAttributes(&attributes, values.data()) == cudaSuccess);
  BOOST_TEST(attributes.type == cudaMemoryTypeUnregistered);
  // A stream belongs to its device.
  BOOST_TEST(run(put, 1, 1, stream, 0, x.data(), 1.0f) == cudaErrorInvalidResourceHandle);
  BOOST_TEST(cudaSetDevice(2) == cudaErrorInvalidDevice);
}

BOOST_AUTO_TEST_CASE(wrong_pointers_are_refused) {
  const DeviceBuffer<float> x(4);
  std::vector<float> host(8);
  const auto bytes = 16;
  BOOST_TEST(cudaMemcpy(host.data(), host.data() + 4, bytes, cudaMemcpyDeviceToHost) ==
             cudaErrorInvalidValue);
  BOOST_TEST(cudaMemcpy(host.data(), host.data() + 4, bytes, cudaMemcpyHostToDevice) ==
             cudaErrorInvalidValue);
  BOOST_TEST(cudaMemcpy(x.data(), x.data(), bytes, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  BOOST_TEST(cudaMemcpy(host.data(), x.data(), bytes + 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  BOOST_TEST(cudaMemset(x.data() + 1, 0, bytes) == cudaErrorInvalidValue);
  BOOST_TEST(cudaMemset(host.data(), 0, bytes) == cudaErrorInvalidValue);
  BOOST_TEST(cudaFree(host.data()) == cudaErrorInvalidValue);
}

BOOST_AUTO_TEST_CASE(the_host_cannot_reach_device_memory) {
  if (!emulated::DeviceRegion().is_guarded()) return;  // accesses of the host cannot be detected here
  const DeviceBuffer<float> x(std::vector<float>(4, 1.0f));
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    _exit(*const_cast<const volatile float*>(x.data()) == 1 ? 0 : 1);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFSIGNALED(status));
  BOOST_TEST(x.values() == std::vector<float>(4, 1.0f));
}

BOOST_AUTO_TEST_CASE(memory_is_limited_and_not_cleared) {
  const DeviceBuffer<unsigned> fresh(3);
  for (const unsigned value : fresh.values()) BOOST_TEST(value == 0xCBCBCBCBu);
  size_t free = 0, total = 0;
  BOOST_TEST(cudaMemGetInfo(&free, &total) == cudaSuccess);
  BOOST_TEST(total == size_t{4} << 30);
  BOOST_TEST(free == total - 12);
  void* pointer = &free;
  BOOST_TEST(cudaMalloc(&pointer, free + 1) == cudaErrorMemoryAllocation);
  BOOST_TEST(pointer == nullptr);
  BOOST_TEST(cudaGetLastError() == cudaErrorMemoryAllocation);
  BOOST_TEST(cudaMalloc(&pointer, ~size_t{0}) == cudaErrorMemoryAllocation);
  BOOST_TEST(emulated::counters().live_bytes == 12u);

  const Stream stream;
  BOOST_TEST(cudaMallocAsync(&pointer, 100, stream) == cudaSuccess);
  BOOST_TEST(cudaFreeAsync(pointer, stream) == cudaSuccess);
  BOOST_TEST(emulated::counters().live_bytes == 112u);
  BOOST_TEST(cudaStreamSynchronize(stream) == cudaSuccess);
  BOOST_TEST(emulated::counters().live_bytes == 12u);
}

BOOST_AUTO_TEST_CASE(events_measure_time) {
  const Stream stream;
  const Event start, end;
  float milliseconds = -1;
  cudaEventRecord(start, stream);
  cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }, nullptr);
  cudaEventRecord(end, stream);
  BOOST_TEST(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  BOOST_TEST(cudaEventSynchronize(end) == cudaSuccess);
  BOOST_TEST(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  BOOST_TEST(milliseconds >= 2.0f);
}

BOOST_AUTO_TEST_CASE(host_functions_may_not_call_back) {
  const Stream stream;
  static cudaError_t inside;
  cudaLaunchHostFunc(
      stream,
      [](void* value) {
        *static_cast<int*>(value) = 1;
        inside = cudaDeviceSynchronize();
      },
      &inside);
  BOOST_TEST(cudaStreamSynchronize(stream) == cudaSuccess);
  BOOST_TEST(inside == cudaErrorNotPermitted);
}

BOOST_AUTO_TEST_CASE(threads_of_the_host_share_a_device) {
  const DeviceBuffer<float> x(std::vector<float>(4, 0.0f));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      for (int i = 0; i < 100; ++i) {
        run(add_to, 1, 1, stream, 0, x.data() + t, 1.0f);
        if (i % 10 == 0) cudaStreamSynchronize(stream);
      }
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    });
  for (auto& thread : threads) thread.join();
  BOOST_TEST(x.now() == std::vector<float>(4, 100.0f), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(failures_can_be_ordered) {
  void* pointer = nullptr;
  emulated::fail_next("cudaMalloc", 2, cudaErrorMemoryAllocation);
  BOOST_TEST(cudaMalloc(&pointer, 4) == cudaSuccess);
  BOOST_TEST(cudaFree(pointer) == cudaSuccess);
  BOOST_TEST(cudaMalloc(&pointer, 4) == cudaErrorMemoryAllocation);
  const DeviceBuffer<float> x(1);
  emulated::fail_next("kernel", 1, cudaErrorIllegalAddress);
  BOOST_TEST(run(put, 1, 1, nullptr, 0, x.data(), 1.0f) == cudaSuccess);
  BOOST_TEST(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  BOOST_TEST(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  cudaSetDevice(1);
  BOOST_TEST(cudaDeviceSynchronize() == cudaSuccess);  // the other one works
}

BOOST_AUTO_TEST_CASE(calls_make_the_context_of_the_current_device) {
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"cudaSetDevice", [] { cudaSetDevice(0); }},
      {"cudaFree", [] { cudaFree(nullptr); }},
      {"cudaDeviceSynchronize", [] { cudaDeviceSynchronize(); }},
      {"cudaMemGetInfo",
       [] {
         size_t free = 0, total = 0;
         cudaMemGetInfo(&free, &total);
       }},
  };
  using State = CUresult (*)(CUdevice, unsigned*, int*);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  emulated::forget_contexts();
  BOOST_TEST(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 7000,
                                              cudaEnableDefault, &result) == cudaSuccess);
  BOOST_REQUIRE(function != nullptr);
  const auto active = [&] {
    unsigned flags = 0;
    int is_active = -1;
    BOOST_TEST(reinterpret_cast<State>(function)(0, &flags, &is_active) == CUDA_SUCCESS);
    return is_active;
  };
  int value = 0;
  cudaGetDevice(&value);
  cudaGetDeviceCount(&value);
  cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0);
  BOOST_TEST(active() == 0);  // these ask only
  for (const auto& [name, call] : calls) BOOST_TEST_CONTEXT(name) {
      emulated::forget_contexts();
      std::thread(call).join();
      BOOST_TEST(active() == 1);
      BOOST_TEST(emulated::has_context(0));
      BOOST_TEST(!emulated::has_context(1));
    }
  cudaSetDevice(1);
  BOOST_TEST(emulated::has_context(1));
  cudaDeviceReset();
  BOOST_TEST(!emulated::has_context(1));
}

BOOST_AUTO_TEST_CASE(there_may_be_no_device) {
  setenv("ESPALIER_EMULATED_GPUS", "0", 1);
  emulated::reset();
  int count = -1;
  BOOST_TEST(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  BOOST_TEST(count == 0);
  void* pointer = nullptr;
  BOOST_TEST(cudaMalloc(&pointer, 4) == cudaErrorNoDevice);
  unsetenv("ESPALIER_EMULATED_GPUS");
  emulated::reset();
  BOOST_TEST(cudaGetDeviceCount(&count) == cudaSuccess);
  BOOST_TEST(count == 2);
  BOOST_TEST(cudaGetErrorName(cudaErrorNoDevice) == std::string("cudaErrorNoDevice"));
}

BOOST_AUTO_TEST_SUITE_END()
