#include "espalier/core/cuda/value_errors.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"

namespace espalier::cu {

namespace {

struct Site {
  std::string op;
  CallSite where;
};

/// All ops and lines that report indices, each once; a record names one by its number.
class Sites {
 public:
  unsigned int number(std::string_view op, const CallSite& where) {
    const std::lock_guard lock(mutex_);
    const Key key{std::string(op), where.file_name(), where.line()};
    const auto [at, is_new] = numbers_.try_emplace(key, static_cast<unsigned int>(sites_.size()));
    if (is_new) sites_.push_back({std::string(op), where});
    return at->second;
  }
  Site site(unsigned int number) {
    const std::lock_guard lock(mutex_);
    return sites_.at(number);
  }

 private:
  using Key = std::tuple<std::string, std::string, unsigned int>;
  std::mutex mutex_;
  std::map<Key, unsigned int> numbers_;
  std::vector<Site> sites_;
};
Sites& sites() {
  static Sites* const all = new Sites;
  return *all;
}

/// One record, as the host and as its device address it.
struct Mapped {
  std::once_flag once;
  ValueRecord* device = nullptr;
  unsigned int* found = nullptr;  // in device memory
  std::atomic<ValueRecord*> host{nullptr};
};
Mapped& mapped(int device) {
  static Mapped* const all = new Mapped[most_devices];
  return all[device];
}

/// Lets kernels record a value again. Waits, so that no later kernel of any stream finds the flag set.
void clear_found(const Mapped& record) {
  const cudaStream_t stream = current_stream();
  check(cudaMemsetAsync(record.found, 0, sizeof *record.found, stream), "clearing device memory");
  check(cudaStreamSynchronize(stream), "waiting for a stream");
}

}  // namespace

ValueReport value_report(const KernelCall& call, std::string_view op) {
  const int device = call.outputs[0]->device().index;
  Mapped& record = mapped(device);
  std::call_once(record.once, [&] {
    const DeviceScope scope(device);
    void *host = nullptr, *there = nullptr, *found = nullptr;
    check(cudaHostAlloc(&host, sizeof(ValueRecord), cudaHostAllocMapped), "allocating host memory");
    check(cudaHostGetDevicePointer(&there, host, 0), "mapping host memory");
    check(cudaMalloc(&found, sizeof *record.found), "allocating device memory");
    record.found = static_cast<unsigned int*>(found);
    clear_found(record);
    record.device = static_cast<ValueRecord*>(there);
    record.host.store(new (host) ValueRecord{});
  });
  return {record.device, record.found, sites().number(op, call.where ? *call.where : CallSite())};
}

void throw_recorded_value() {
  const Mapped& here = mapped(current_device());
  ValueRecord* record = here.host.load();
  if (!record) return;
  volatile ValueRecord& shared = *record;
  if (shared.complete == 0u) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  const long long index = shared.index, size = shared.size;
  const double number = shared.number;
  const Site site = sites().site(shared.site);
  shared.complete = 0u;
  clear_found(here);
  BuildContext own_line = build_context();
  own_line.where = nullptr;  // the line is the kernel's call, not the one that waited for it
  const BuildScope scope(own_line);
  located(site.where, [&] {
    if (size == -1) throw Error(fmt::format("{}: {} is not a probability, from 0 to 1", site.op, number));
    if (size < 0) throw Error(fmt::format("{}: {} is no parameter of this distribution", site.op, number));
    throw IndexError(fmt::format("{}: index {} is outside an axis of size {}", site.op, index, size));
  });
}

}  // namespace espalier::cu
