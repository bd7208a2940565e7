// CUDA without Espalier, for the benchmarks: checked calls, streams, memory, and timed replays of graphs.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "../timing.h"

namespace bench {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~Memory() { (void)cudaFree(data_); }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Memory& operator=(Memory&&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

/// The operations that `work` enqueues in the stream, as one graph.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    work();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  ~Graph() { (void)cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Seconds per replay in a sequence of many: the median of several rounds.
  double seconds(int rounds, int replays) const {
    return median_seconds(rounds,
                          [&] {
                            for (int i = 0; i < replays; ++i)
                              check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
                            stream_.wait();
                          }) /
           replays;
  }

 private:
  const Stream& stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace bench
