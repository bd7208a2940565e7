// The state of the emulated runtime. One lock guards all of it, and is held while kernels run.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device_region.h"
#include "emulated_cuda.h"

namespace emulated {

class Call;

/// An operation of a stream or a node of a graph.
struct Task {
  cudaGraphNodeType type;
  int device;
  /// Returns a sticky error of the device. Host functions run without the lock.
  std::function<cudaError_t()> run;
};

/// A point in the work of a stream.
struct Position {
  std::shared_ptr<CUstream_st> stream;
  uint64_t number = 0;
};

struct Operation {
  Task task;
  Position after;  ///< must be reached before, in another stream
};

struct Node {
  Task task;
  std::vector<size_t> after;  ///< nodes of the same graph
};

/// An active capture. A forbidden call sets `invalidated`.
struct Capture {
  std::shared_ptr<CUgraph_st> graph;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st* origin;
  unsigned long long id;
  bool invalidated = false;
  std::vector<CUstream_st*> streams;
};

}  // namespace emulated

struct CUstream_st {
  int device;
  unsigned flags;
  int priority;
  std::deque<emulated::Operation> queue;
  uint64_t enqueued = 0, completed = 0;
  bool running = false;    ///< one of its host functions runs, without the lock
  bool destroyed = false;  ///< its work continues
  std::shared_ptr<emulated::Capture> capture;
  std::vector<size_t> frontier;  ///< the dependencies of the next node

  bool idle() const { return completed == enqueued; }
  bool waits_for_legacy() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device;
  unsigned flags;
  emulated::Position position;                 ///< where it was recorded; no stream if it never was
  std::shared_ptr<double> milliseconds;        ///< the time at which the stream reached it
  std::shared_ptr<emulated::Capture> capture;  ///< if it was recorded in a capture, after these nodes
  std::vector<size_t> nodes;
};

struct CUgraphNode_st {
  CUgraph_st* graph;
  size_t number;
};

struct CUgraph_st {
  std::vector<emulated::Node> nodes;
  std::deque<CUgraphNode_st> handles;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<emulated::Node>> nodes;  ///< in execution order
  emulated::Position last;                                   ///< the end of its last launch
};

namespace emulated {

enum class Memory { Device, Pinned, Registered };

struct Allocation {
  Memory memory;
  int device;
  size_t bytes;
  void* block;  ///< allocated on the host; null for registered memory
};

struct DeviceState {
  std::shared_ptr<CUstream_st> legacy;
  std::vector<std::shared_ptr<CUstream_st>> streams;
  cudaError_t error = cudaSuccess;  ///< sticky error
  bool context = false;             ///< the primary context exists
  size_t used = 0;
  std::unordered_set<int> peers;
};

struct Failure {
  std::string function;
  int calls;
  cudaError_t error;
};

class Runtime {
 public:
  Runtime();
  void read_environment();

  // Memory (memory.cpp).
  const Allocation* find(const void* pointer, size_t bytes = 1) const;
  cudaError_t allocate(void** pointer, size_t bytes, Memory memory, int device);
  cudaError_t release(void* pointer, bool pinned);
  /// Reports writes around an allocation.
  cudaError_t check_guards(int device);

  // Streams (stream.cpp).
  std::shared_ptr<CUstream_st> stream(cudaStream_t handle);
  cudaError_t enqueue(Call& call, const std::shared_ptr<CUstream_st>& stream, Task task);
  cudaError_t wait_for(Call& call, const std::shared_ptr<CUstream_st>& stream, const Position& position);
  void run_to(Call& call, const std::shared_ptr<CUstream_st>& stream, uint64_t number);
  void run_one(Call& call, const std::shared_ptr<CUstream_st>& stream);
  void run_device(Call& call, int device);
  cudaError_t run(Call& call, const Task& task);

  // Captures (capture.cpp).
  /// Returns an error for a call that is forbidden during the active captures.
  cudaError_t forbid_in_capture();
  cudaError_t invalidate(const std::shared_ptr<Capture>& capture, cudaError_t error);

  bool inject(const char* function, cudaError_t& error);
  cudaError_t complain(cudaError_t error, const std::string& text);

  std::mutex mutex;
  std::condition_variable finished;
  std::vector<DeviceState> devices;
  size_t memory = 0;
  int multiprocessors = 0;
  bool eager = false, reverse = false, peers = true;
  Counters counters;
  std::string complaint;
  std::vector<Failure> failures;
  std::map<std::string, std::function<void()>> hooks;  ///< by function
  std::atomic<bool> has_hooks = false;
  std::map<uintptr_t, Allocation> allocations;
  DeviceRegion region;
  std::unordered_set<CUevent_st*> events;
  std::unordered_map<CUgraph_st*, std::shared_ptr<CUgraph_st>> graphs;
  std::unordered_set<CUgraphExec_st*> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  unsigned long long next_capture = 1;
  std::unordered_map<const void*, int> dynamic_shared;  ///< kernels with a raised limit, in bytes
  std::unordered_set<CUkern_st*> kernels;
};
Runtime& runtime();

/// The state of a calling thread.
struct ThreadState {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool in_host_function = false;
};
extern thread_local ThreadState this_thread;

/// Holds the lock during a call of the interface.
class Call {
 public:
  Call() : lock(runtime().mutex) {}
  std::unique_lock<std::mutex> lock;
};

/// Context: the device's primary context, which the call makes if there is none yet. HealthyDevice: the same,
/// and no sticky error.
enum class Needs { Nothing, Device, Context, HealthyDevice };

/// Calls what `before_next` was given for this function.
void call_hook(const char* function);

/// The common part of all calls: takes the lock, applies injected failures, checks the device and its sticky
/// error, and sets the error that cudaGetLastError returns.
template <class F>
cudaError_t api(const char* name, Needs needs, F&& f) {
  call_hook(name);
  Call call;
  Runtime& r = runtime();
  cudaError_t error = cudaSuccess;
  const auto stays = [&] { return r.devices[static_cast<size_t>(this_thread.device)].error; };
  if (this_thread.in_host_function) {
    error =
        r.complain(cudaErrorNotPermitted, std::string(name) + " is called by a host function of a stream");
  } else if (needs != Needs::Nothing && r.devices.empty()) {
    error = cudaErrorNoDevice;
  } else if (!r.inject(name, error)) {
    if (needs >= Needs::Context) r.devices[static_cast<size_t>(this_thread.device)].context = true;
    if (needs == Needs::HealthyDevice) error = stays();
    if (error == cudaSuccess) error = f(r, call);
    if (error == cudaSuccess && needs != Needs::Nothing) error = stays();
  }
  if (error != cudaSuccess && error != cudaErrorNotReady) this_thread.last_error = error;
  return error;
}

/// Enqueues a kernel; `run` returns an error message, or "".
cudaError_t enqueue_kernel(Runtime& r, Call& call, cudaStream_t stream, std::function<std::string()> run);

}  // namespace emulated
