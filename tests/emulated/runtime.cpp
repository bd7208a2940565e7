#include "runtime.h"

#include <cstdio>
#include <cstdlib>

namespace emulated {

thread_local ThreadState this_thread;

Runtime& runtime() {
  static auto* the_one = new Runtime;  // never destroyed: calls may come during the exit of the program
  return *the_one;
}

namespace {
unsigned long long environment(const char* name, unsigned long long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}
}  // namespace

Runtime::Runtime() { read_environment(); }

void Runtime::read_environment() {
  eager = environment("ESPALIER_EMULATED_EAGER", 0) != 0;
  reverse = environment("ESPALIER_EMULATED_REVERSE", 0) != 0;
  peers = environment("ESPALIER_EMULATED_PEERS", 1) != 0;
  multiprocessors = static_cast<int>(environment("ESPALIER_EMULATED_MULTIPROCESSORS", 4));
  memory = environment("ESPALIER_EMULATED_MEMORY", 4ull << 30);
  devices.resize(environment("ESPALIER_EMULATED_GPUS", 2));
  for (size_t device = 0; device < devices.size(); ++device) {
    if (devices[device].legacy) continue;
    devices[device].legacy = std::make_shared<CUstream_st>();
    devices[device].legacy->device = static_cast<int>(device);
    devices[device].legacy->flags = 0;
    devices[device].legacy->priority = 0;
  }
}

bool Runtime::inject(const char* function, cudaError_t& error) {
  for (size_t i = 0; i < failures.size(); ++i) {
    if (failures[i].function != function || --failures[i].calls > 0) continue;
    error = failures[i].error;
    failures.erase(failures.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

cudaError_t Runtime::complain(cudaError_t error, const std::string& text) {
  complaint = text;
  std::fprintf(stderr, "emulated CUDA: %s: %s\n", cudaGetErrorName(error), text.c_str());
  return error;
}

Counters counters() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  Counters result = r.counters;
  for (const auto& [address, allocation] : r.allocations) {
    if (allocation.memory == Memory::Device) {
      ++result.live_allocations;
      result.live_bytes += allocation.bytes;
    } else if (allocation.memory == Memory::Pinned) {
      result.live_pinned_bytes += allocation.bytes;
    }
  }
  for (const DeviceState& device : r.devices)
    for (const auto& stream : device.streams) result.live_streams += stream->destroyed ? 0 : 1;
  result.live_events = r.events.size();
  result.live_graphs = r.graphs.size();
  result.live_executables = r.executables.size();
  return result;
}

void fail_next(const std::string& function, int k, cudaError_t error) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  r.failures.push_back({function, k, error});
}

void before_next(const std::string& function, std::function<void()> f) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  r.hooks[function] = std::move(f);
  r.has_hooks = true;
}

void call_hook(const char* function) {
  Runtime& r = runtime();
  if (!r.has_hooks) return;
  std::function<void()> f;
  {
    const std::lock_guard lock(r.mutex);
    if (auto hook = r.hooks.extract(function)) f = std::move(hook.mapped());
    r.has_hooks = !r.hooks.empty();
  }
  if (f) f();
}

bool has_context(int device) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  return r.devices.at(static_cast<size_t>(device)).context;
}

void forget_contexts() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  for (DeviceState& device : r.devices) device.context = false;
}

void cancel_failures() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  r.failures.clear();
}

std::string last_complaint() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  return r.complaint;
}

void reset() {
  Runtime& r = runtime();
  Call call;
  for (size_t device = 0; device < r.devices.size(); ++device) {
    r.run_device(call, static_cast<int>(device));
    r.devices[device].error = cudaSuccess;
  }
  r.complaint.clear();
  r.failures.clear();
  this_thread.last_error = cudaSuccess;
  this_thread.device = 0;
  r.read_environment();
}

}  // namespace emulated
