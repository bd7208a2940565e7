// Copies. Pinned memory is read and written when the stream runs the copy; pageable memory is read
// immediately, and written before the call returns.
#include <cstring>

#include "runtime.h"

namespace emulated {
namespace {

struct Rows {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch;
  size_t width, height;
  size_t to_bytes() const { return height == 0 ? 0 : (height - 1) * to_pitch + width; }
  size_t from_bytes() const { return height == 0 ? 0 : (height - 1) * from_pitch + width; }
};

void copy_rows(const Rows& rows) {
  for (size_t i = 0; i < rows.height; ++i)
    std::memmove(static_cast<char*>(rows.to) + i * rows.to_pitch,
                 static_cast<const char*>(rows.from) + i * rows.from_pitch, rows.width);
}

enum class Place { Device, Pinned, Pageable, Wrong };

Place place(const Runtime& r, const void* pointer, size_t bytes, bool device_wanted, bool any) {
  const Allocation* allocation = r.find(pointer, bytes);
  if (allocation == nullptr) {
    // A range that begins in an allocation must not end beyond it.
    return (device_wanted && !any) || r.find(pointer) != nullptr ? Place::Wrong : Place::Pageable;
  }
  const bool on_device = allocation->memory == Memory::Device;
  if (!any && on_device != device_wanted) return Place::Wrong;
  return on_device ? Place::Device : Place::Pinned;
}

/// For synchronization of copies with the host, see "API synchronization behavior" of the CUDA runtime.
cudaError_t copy(Runtime& r, Call& call, Rows rows, cudaMemcpyKind kind, cudaStream_t handle,
                 bool synchronous) {
  const auto stream = r.stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (rows.width > rows.to_pitch || rows.width > rows.from_pitch) return cudaErrorInvalidPitchValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  const bool any = kind == cudaMemcpyDefault;
  const Place to = place(r, rows.to, rows.to_bytes(),
                         kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, any);
  const Place from = place(r, rows.from, rows.from_bytes(),
                           kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, any);
  if (to == Place::Wrong || from == Place::Wrong || rows.to == nullptr || rows.from == nullptr)
    return r.complain(cudaErrorInvalidValue, std::string("a copy of ") +
                                                 std::to_string(rows.width * rows.height) + " bytes " +
                                                 (to == Place::Wrong ? "to" : "from") +
                                                 " memory of another kind than it names, or beyond its end");
  if (stream->capture && (to == Place::Pageable || from == Place::Pageable)) {
    r.complain(cudaErrorStreamCaptureUnsupported, "a captured copy from or to pageable memory");
    return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  if (synchronous) {
    const cudaError_t error = r.forbid_in_capture();
    if (error != cudaSuccess) return error;
  }
  if (!stream->capture) ++r.counters.copies;

  Task task{cudaGraphNodeTypeMemcpy, stream->device, {}};
  if (from == Place::Pageable && to == Place::Device) {
    const auto staged = std::make_shared<std::vector<char>>(rows.width * rows.height);
    copy_rows({staged->data(), rows.width, rows.from, rows.from_pitch, rows.width, rows.height});
    rows.from_pitch = rows.width;
    task.run = [staged, rows]() mutable {
      rows.from = staged->data();
      copy_rows(rows);
      return cudaSuccess;
    };
  } else {
    task.run = [rows] {
      copy_rows(rows);
      return cudaSuccess;
    };
  }
  const cudaError_t error = r.enqueue(call, stream, std::move(task));
  if (error != cudaSuccess || stream->capture) return error;
  // From pageable memory the host waits only for staging; for copies on the device it does not wait.
  const bool of_device = to == Place::Device && (from == Place::Device || from == Place::Pageable);
  const bool to_pageable = to == Place::Pageable || (from == Place::Pageable && to == Place::Pinned);
  if (to_pageable || (synchronous && !of_device)) {
    ++r.counters.synchronizations;
    r.run_to(call, stream, stream->enqueued);
    return r.devices[static_cast<size_t>(stream->device)].error;
  }
  return cudaSuccess;
}

cudaError_t set(Runtime& r, Call& call, void* pointer, int value, size_t bytes, cudaStream_t handle) {
  const auto stream = r.stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (r.find(pointer, bytes) == nullptr)
    return r.complain(cudaErrorInvalidValue, "cudaMemset beyond memory of the device");
  return r.enqueue(call, stream, {cudaGraphNodeTypeMemset, stream->device, [=] {
                                    std::memset(pointer, value, bytes);
                                    return cudaSuccess;
                                  }});
}

cudaError_t copy_peer(Runtime& r, Call& call, void* to, int to_device, const void* from, int from_device,
                      size_t bytes, cudaStream_t stream, bool synchronous) {
  const Allocation* target = r.find(to, bytes);
  const Allocation* source = r.find(from, bytes);
  if (target == nullptr || source == nullptr || target->device != to_device || source->device != from_device)
    return r.complain(cudaErrorInvalidValue, "a copy between devices, one of which has not this memory");
  return copy(r, call, {to, bytes, from, bytes, bytes, 1}, cudaMemcpyDeviceToDevice, stream, synchronous);
}

}  // namespace
}  // namespace emulated

using namespace emulated;

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy(r, call, {to, bytes, from, bytes, bytes, 1}, kind, nullptr, true);
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api("cudaMemcpyAsync", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy(r, call, {to, bytes, from, bytes, bytes, 1}, kind, stream, false);
  });
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  return api("cudaMemcpy2D", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy(r, call, {to, to_pitch, from, from_pitch, width, height}, kind, nullptr, true);
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpy2DAsync", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy(r, call, {to, to_pitch, from, from_pitch, width, height}, kind, stream, false);
  });
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return api("cudaMemcpyPeer", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy_peer(r, call, to, to_device, from, from_device, bytes, nullptr, true);
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    return copy_peer(r, call, to, to_device, from, from_device, bytes, stream, false);
  });
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return api("cudaMemset", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const cudaError_t error = r.forbid_in_capture();
    return error != cudaSuccess ? error : set(r, call, pointer, value, bytes, nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", Needs::HealthyDevice,
             [&](Runtime& r, Call& call) { return set(r, call, pointer, value, bytes, stream); });
}
