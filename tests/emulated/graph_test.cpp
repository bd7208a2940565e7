// The emulated device: captures and graphs.
#include <functional>
#include <thread>

#include "device_buffer.h"
#include "test_kernels.h"

namespace {

template <class F>
cudaGraphExec_t captured(cudaStream_t stream, F&& f) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  BOOST_REQUIRE_EQUAL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), 0);
  f();
  BOOST_REQUIRE_EQUAL(cudaStreamEndCapture(stream, &graph), 0);
  BOOST_REQUIRE_EQUAL(cudaGraphInstantiate(&executable, graph), 0);
  BOOST_REQUIRE_EQUAL(cudaGraphDestroy(graph), 0);
  return executable;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(emulated_graphs, Fresh)

BOOST_AUTO_TEST_CASE(a_graph_keeps_the_arguments_of_its_capture) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream stream;
  float factor = 3;
  const auto before = emulated::counters();
  const cudaGraphExec_t graph = captured(stream, [&] {
    run(scale, 1, 1, stream, 0, x.data(), 1, factor);
    run(add_to, 1, 1, stream, 0, x.data(), 1.0f);
  });
  factor = 100;
  cudaStreamSynchronize(stream);
  BOOST_TEST(x.now()[0] == 1.0f);  // nothing ran
  BOOST_TEST(cudaGraphLaunch(graph, stream) == cudaSuccess);
  BOOST_TEST(cudaGraphLaunch(graph, stream) == cudaSuccess);
  cudaStreamSynchronize(stream);
  BOOST_TEST(x.now()[0] == 13.0f);
  const auto after = emulated::counters();
  BOOST_TEST(after.launches == before.launches);
  BOOST_TEST(after.graph_launches == before.graph_launches + 2);
  BOOST_TEST(after.kernels_run == before.kernels_run + 4);
  BOOST_TEST(after.nodes_in_last_graph == 2u);
  BOOST_TEST(cudaGraphExecDestroy(graph) == cudaSuccess);
  BOOST_TEST(cudaGraphLaunch(graph, stream) == cudaErrorInvalidValue);
}

BOOST_AUTO_TEST_CASE(a_capture_forks_and_joins) {
  const DeviceBuffer<float> x(std::vector<float>{1}), y(std::vector<float>{0}), z(std::vector<float>{0});
  const Stream a, b;
  const Event fork, join;
  const auto body = [&](bool wait_for_branch) {
    run(put, 1, 1, a, 0, x.data(), 5.0f);
    cudaEventRecord(fork, a);
    cudaStreamWaitEvent(b, fork);
    run(copy_one, 1, 1, b, 0, y.data(), static_cast<const float*>(x.data()));
    cudaEventRecord(join, b);
    if (wait_for_branch) cudaStreamWaitEvent(a, join);
    run(copy_one, 1, 1, a, 0, z.data(), static_cast<const float*>(y.data()));
    cudaStreamWaitEvent(a, join);
  };
  const cudaGraphExec_t graph = captured(a, [&] { body(true); });
  cudaGraphLaunch(graph, a);
  cudaStreamSynchronize(a);
  BOOST_TEST(z.now()[0] == 5.0f);
  cudaStreamCaptureStatus status;
  BOOST_TEST(cudaStreamIsCapturing(b, &status) == cudaSuccess);
  BOOST_TEST(status == cudaStreamCaptureStatusNone);

  // Without the wait the two branches are unordered, and the emulator runs them in the wrong order.
  cudaMemset(y.data(), 0, 4);
  cudaDeviceSynchronize();
  const cudaGraphExec_t racing = captured(a, [&] { body(false); });
  cudaGraphLaunch(racing, a);
  cudaStreamSynchronize(a);
  BOOST_TEST(z.now()[0] == 0.0f);
  cudaGraphExecDestroy(graph);
  cudaGraphExecDestroy(racing);
}

BOOST_AUTO_TEST_CASE(a_branch_must_be_joined) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream a, b;
  const Event fork;
  cudaGraph_t graph = nullptr;
  BOOST_TEST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  run(put, 1, 1, a, 0, x.data(), 5.0f);
  cudaEventRecord(fork, a);
  cudaStreamWaitEvent(b, fork);
  run(put, 1, 1, b, 0, x.data(), 6.0f);
  BOOST_TEST(cudaStreamEndCapture(b, &graph) == cudaErrorStreamCaptureUnmatched);
  BOOST_TEST(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
  BOOST_TEST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  run(put, 1, 1, a, 0, x.data(), 5.0f);
  cudaEventRecord(fork, a);
  cudaStreamWaitEvent(b, fork);
  run(put, 1, 1, b, 0, x.data(), 6.0f);
  BOOST_TEST(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined);
  BOOST_TEST(graph == nullptr);
  BOOST_TEST(cudaStreamSynchronize(b) == cudaSuccess);  // its capture has ended
}

BOOST_AUTO_TEST_CASE(captures_forbid_what_would_wait) {
  const DeviceBuffer<float> x(std::vector<float>{1});
  const Stream stream, other;
  float host = 0;
  void* pointer = nullptr;
  Event outside;
  cudaEventRecord(outside, other);
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&pointer, 4); }},
      {"cudaFree", [&] { return cudaFree(x.data()); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream); }},
      {"of another stream", [&] { return cudaStreamSynchronize(other); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(&host, x.data(), 4, cudaMemcpyDeviceToHost); }},
      {"pageable", [&] { return cudaMemcpyAsync(x.data(), &host, 4, cudaMemcpyHostToDevice, stream); }},
      {"legacy", [&] { return run(put, 1, 1, nullptr, 0, x.data(), 1.0f); }},
      {"query", [&] { return cudaEventQuery(outside); }},
  };
  for (const auto& [name, call] : calls) {
    BOOST_TEST_CONTEXT(name) {
      cudaGraph_t graph = nullptr;
      BOOST_TEST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      BOOST_TEST(call() == cudaErrorStreamCaptureUnsupported);
      BOOST_TEST(run(put, 1, 1, stream, 0, x.data(), 1.0f) == cudaErrorStreamCaptureInvalidated);
      BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    }
  }
  cudaGraph_t graph = nullptr;
  BOOST_TEST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  BOOST_TEST(cudaStreamWaitEvent(stream, outside) == cudaErrorStreamCaptureIsolation);
  BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);

  // Relaxed captures forbid fewer calls; a thread-local one does not restrict other threads.
  BOOST_TEST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  BOOST_TEST(cudaMalloc(&pointer, 4) == cudaSuccess);
  BOOST_TEST(cudaFree(pointer) == cudaSuccess);
  BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    BOOST_TEST(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
    cudaError_t beside = cudaErrorUnknown;
    std::thread([&] {
      void* theirs = nullptr;
      beside = cudaMalloc(&theirs, 4);
      if (beside == cudaSuccess) cudaFree(theirs);
    }).join();
    const bool local = mode == cudaStreamCaptureModeThreadLocal;
    BOOST_TEST(beside == (local ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
    BOOST_TEST(cudaStreamEndCapture(stream, &graph) ==
               (local ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
}

BOOST_AUTO_TEST_CASE(a_device_is_not_waited_for_while_any_thread_captures_on_it) {
  const Stream stream;
  for (const auto mode :
       {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
    cudaGraph_t graph = nullptr;
    BOOST_TEST(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
    cudaError_t same = cudaErrorUnknown, other = cudaErrorUnknown;
    std::thread([&] {
      cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&relaxed);
      cudaSetDevice(1);
      other = cudaDeviceSynchronize();
      cudaSetDevice(0);
      same = cudaDeviceSynchronize();
    }).join();
    BOOST_TEST(other == cudaSuccess);
    BOOST_TEST(same == cudaErrorStreamCaptureUnsupported);
    BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  }
}

BOOST_AUTO_TEST_CASE(graphs_hold_copies_sets_and_host_functions) {
  const DeviceBuffer<float> x(1);
  const Pinned pinned(1);
  const Stream stream;
  static int calls;
  calls = 0;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(x.data(), 0, 4, stream);
  run(add_to, 1, 1, stream, 0, x.data(), 2.0f);
  cudaMemcpyAsync(pinned.data, x.data(), 4, cudaMemcpyDeviceToHost, stream);
  cudaLaunchHostFunc(
      stream, [](void*) { ++calls; }, nullptr);
  BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  size_t count = 0;
  BOOST_TEST(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
  BOOST_REQUIRE_EQUAL(count, 4u);
  std::vector<cudaGraphNode_t> nodes(count);
  BOOST_TEST(cudaGraphGetNodes(graph, nodes.data(), &count) == cudaSuccess);
  const cudaGraphNodeType expected[] = {cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel,
                                        cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeHost};
  for (size_t i = 0; i < 4; ++i) {
    cudaGraphNodeType type;
    BOOST_TEST(cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess);
    BOOST_TEST(type == expected[i]);
  }
  cudaGraphExec_t executable = nullptr;
  BOOST_TEST(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  cudaGraphLaunch(executable, stream);
  cudaGraphLaunch(executable, stream);
  cudaStreamSynchronize(stream);
  BOOST_TEST(*pinned.data == 2.0f);
  BOOST_TEST(calls == 2);
  cudaGraphExecDestroy(executable);
}

BOOST_AUTO_TEST_SUITE_END()
