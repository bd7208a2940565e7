// Streams and events. Enqueued work runs only when a call waits for it: this is the longest delay a device
// may have, and reveals missing synchronization.
#include <algorithm>
#include <chrono>

#include "runtime.h"

namespace emulated {
namespace {

constexpr size_t longest_queue = 16384;  // operations; then the host waits, as for a real device

bool done(const Position& position) {
  return !position.stream || position.stream->completed >= position.number;
}
Position end_of(const std::shared_ptr<CUstream_st>& stream) { return {stream, stream->enqueued}; }

void push(const std::shared_ptr<CUstream_st>& stream, Task task, Position after = {}) {
  stream->queue.push_back({std::move(task), std::move(after)});
  ++stream->enqueued;
}
void push_wait(const std::shared_ptr<CUstream_st>& stream, const Position& after) {
  if (!done(after)) push(stream, {cudaGraphNodeTypeEmpty, stream->device, {}}, after);
}

}  // namespace

std::shared_ptr<CUstream_st> Runtime::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy)
    return devices[static_cast<size_t>(this_thread.device)].legacy;
  for (const DeviceState& device : devices)
    for (const auto& stream : device.streams)
      if (stream.get() == handle && !stream->destroyed) return stream;
  return nullptr;
}

cudaError_t Runtime::enqueue(Call& call, const std::shared_ptr<CUstream_st>& stream, Task task) {
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
    capture.graph->nodes.push_back({std::move(task), stream->frontier});
    stream->frontier = {capture.graph->nodes.size() - 1};
    return cudaSuccess;
  }
  // The legacy stream and blocking streams wait for each other.
  DeviceState& device = devices[static_cast<size_t>(stream->device)];
  if (stream == device.legacy) {
    for (const auto& capture : captures)
      for (const CUstream_st* captured : capture->streams)
        if (captured->device == stream->device && captured->waits_for_legacy())
          return invalidate(capture, cudaErrorStreamCaptureImplicit);
    const cudaError_t error = forbid_in_capture();
    if (error != cudaSuccess) return error;
    for (const auto& other : device.streams)
      if (other->waits_for_legacy()) push_wait(stream, end_of(other));
  } else if (stream->waits_for_legacy()) {
    push_wait(stream, end_of(device.legacy));
  }
  push(stream, std::move(task));
  if (eager)
    run_to(call, stream, stream->enqueued);
  else if (stream->queue.size() > longest_queue)
    run_to(call, stream, stream->enqueued - longest_queue / 2);
  return cudaSuccess;
}

cudaError_t Runtime::wait_for(Call& call, const std::shared_ptr<CUstream_st>& stream,
                              const Position& position) {
  push_wait(stream, position);
  if (eager) run_to(call, stream, stream->enqueued);
  return cudaSuccess;
}

void Runtime::run_to(Call& call, const std::shared_ptr<CUstream_st>& stream, uint64_t number) {
  const DeviceRegion::Open open(region);
  std::vector<Position> goals = {{stream, number}};
  while (!goals.empty()) {
    const Position goal = goals.back();
    CUstream_st& s = *goal.stream;
    if (done(goal))
      goals.pop_back();
    else if (s.running)
      finished.wait(call.lock);
    else if (!done(s.queue.front().after))
      goals.push_back(s.queue.front().after);
    else
      run_one(call, goal.stream);
  }
}

/// Runs the next operation of a stream, whose dependencies are complete.
void Runtime::run_one(Call& call, const std::shared_ptr<CUstream_st>& stream) {
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  stream->running = true;
  const cudaError_t error = run(call, operation.task);
  if (error != cudaSuccess) devices[static_cast<size_t>(operation.task.device)].error = error;
  stream->running = false;
  ++stream->completed;
  finished.notify_all();
}

cudaError_t Runtime::run(Call& call, const Task& task) {
  const auto& device = devices[static_cast<size_t>(task.device)];
  if (!task.run || device.error != cudaSuccess) return device.error;  // a device with an error runs nothing
  if (task.type != cudaGraphNodeTypeHost) {
    const DeviceRegion::Open open(region);
    return task.run();
  }
  call.lock.unlock();
  this_thread.in_host_function = true;
  const cudaError_t error = task.run();
  this_thread.in_host_function = false;
  call.lock.lock();
  return error;
}

void Runtime::run_device(Call& call, int device) {
  auto& state = devices[static_cast<size_t>(device)];
  // Streams are unordered: run the last one first.
  const auto streams = state.streams;
  for (auto it = streams.rbegin(); it != streams.rend(); ++it) run_to(call, *it, (*it)->enqueued);
  run_to(call, state.legacy, state.legacy->enqueued);
  std::erase_if(state.streams, [](const auto& s) { return s->destroyed && s->idle(); });
}

namespace {

cudaError_t create(cudaStream_t* handle, unsigned flags, int priority) {
  Runtime& r = runtime();
  if (handle == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  auto stream = std::make_shared<CUstream_st>();
  stream->device = this_thread.device;
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  *handle = stream.get();
  r.devices[static_cast<size_t>(this_thread.device)].streams.push_back(std::move(stream));
  return cudaSuccess;
}

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Returns the error for the use of a captured event outside its capture.
cudaError_t of_capture(Runtime& r, const CUevent_st& event) {
  return event.capture ? r.invalidate(event.capture, cudaErrorCapturedEvent) : cudaSuccess;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return api("cudaStreamCreate", Needs::HealthyDevice, [&](Runtime&, Call&) { return create(stream, 0, 0); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api("cudaStreamCreateWithFlags", Needs::HealthyDevice,
             [&](Runtime&, Call&) { return create(stream, flags, 0); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return api("cudaStreamCreateWithPriority", Needs::HealthyDevice,
             [&](Runtime&, Call&) { return create(stream, flags, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api("cudaStreamDestroy", Needs::Context, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream || handle == nullptr || handle == cudaStreamLegacy) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      std::erase(stream->capture->streams, stream.get());
      r.invalidate(stream->capture, cudaErrorStreamCaptureInvalidated);
      if (stream->capture->origin == stream.get()) std::erase(r.captures, stream->capture);
      stream->capture = nullptr;
    }
    stream->destroyed = true;
    auto& streams = r.devices[static_cast<size_t>(stream->device)].streams;
    if (stream->idle()) std::erase(streams, stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return api("cudaStreamGetDevice", Needs::Context, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *device = stream->device;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return api("cudaStreamGetFlags", Needs::Context, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return api("cudaStreamGetPriority", Needs::Context, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api("cudaStreamSynchronize", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    const cudaError_t error = r.forbid_in_capture();
    if (error != cudaSuccess) return error;
    ++r.counters.synchronizations;
    const uint64_t end = stream->enqueued;
    r.run_to(call, stream, end);
    return r.devices[static_cast<size_t>(stream->device)].error;
  });
}
// A query of unfinished work runs one more operation, so that polling terminates.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api("cudaStreamQuery", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    const cudaError_t error = r.forbid_in_capture();
    if (error != cudaSuccess) return error;
    if (stream->idle()) return r.devices[static_cast<size_t>(stream->device)].error;
    r.run_to(call, stream, stream->completed + 1);
    return cudaErrorNotReady;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream || !r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!event->capture) {
      if (!event->position.stream) return cudaSuccess;  // never recorded
      if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureIsolation);
      return r.wait_for(call, stream, event->position);
    }
    Capture& capture = *event->capture;
    if (std::find(r.captures.begin(), r.captures.end(), event->capture) == r.captures.end())
      return cudaErrorCapturedEvent;
    if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!stream->capture) {
      if (handle == nullptr || handle == cudaStreamLegacy)
        return r.invalidate(event->capture, cudaErrorStreamCaptureImplicit);
      stream->capture = event->capture;
      stream->frontier.clear();
      capture.streams.push_back(stream.get());
    } else if (stream->capture != event->capture) {
      r.invalidate(stream->capture, cudaErrorStreamCaptureMerge);
      return r.invalidate(event->capture, cudaErrorStreamCaptureMerge);
    }
    for (const size_t node : event->nodes)
      if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
        stream->frontier.push_back(node);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api("cudaEventCreateWithFlags", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (event == nullptr || (flags & ~3u) != 0) return cudaErrorInvalidValue;
    *event = new CUevent_st{this_thread.device, flags, {}, {}, {}, {}};
    r.events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", Needs::Context, [&](Runtime& r, Call&) {
    if (r.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return api("cudaEventRecord", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream || !r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (stream->device != event->device)
      return r.complain(cudaErrorInvalidResourceHandle,
                        "an event is recorded on another device than its own");
    if (stream->capture) {
      if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
      event->position = {};
      event->capture = stream->capture;
      event->nodes = stream->frontier;
      return cudaSuccess;
    }
    const auto time = std::make_shared<double>(0);
    const cudaError_t error = r.enqueue(call, stream, {cudaGraphNodeTypeEmpty, stream->device, [time] {
                                                         *time = now();
                                                         return cudaSuccess;
                                                       }});
    if (error != cudaSuccess) return error;
    event->position = end_of(stream);
    event->milliseconds = time;
    event->capture = nullptr;
    event->nodes.clear();
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t error = of_capture(r, *event);
    if (error == cudaSuccess) error = r.forbid_in_capture();
    if (error != cudaSuccess || !event->position.stream) return error;
    ++r.counters.synchronizations;
    const Position position = event->position;
    r.run_to(call, position.stream, position.number);
    return r.devices[static_cast<size_t>(position.stream->device)].error;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t error = of_capture(r, *event);
    if (error == cudaSuccess) error = r.forbid_in_capture();
    if (error != cudaSuccess || done(event->position)) return error;
    const Position position = event->position;
    r.run_to(call, position.stream, position.stream->completed + 1);
    return cudaErrorNotReady;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    for (const cudaEvent_t event : {start, end}) {
      if (!r.events.contains(event) || (event->flags & cudaEventDisableTiming) != 0 ||
          !event->position.stream)
        return cudaErrorInvalidResourceHandle;
    }
    if (!done(start->position) || !done(end->position)) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(*end->milliseconds - *start->milliseconds);
    return cudaSuccess;
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user_data) {
  return api("cudaLaunchHostFunc", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    return r.enqueue(call, stream, {cudaGraphNodeTypeHost, stream->device, [function, user_data] {
                                      function(user_data);
                                      return cudaSuccess;
                                    }});
  });
}
