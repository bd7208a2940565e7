// NVTX with a profiler that keeps the names of ranges.
#include <nvtx3/nvToolsExt.h>

#include <mutex>

#include "emulated_cuda.h"

struct nvtxDomainRegistration_st {
  std::string name;
};

namespace {

struct Profiler {
  std::mutex mutex;
  bool records = false;
  std::vector<std::string> ranges;
};
Profiler& profiler() {
  static auto* one = new Profiler;
  return *one;
}
thread_local std::vector<std::string> open_ranges;

}  // namespace

namespace emulated {

void record_ranges() {
  const std::lock_guard lock(profiler().mutex);
  profiler().records = true;
  profiler().ranges.clear();
}

std::vector<std::string> recorded_ranges() {
  const std::lock_guard lock(profiler().mutex);
  profiler().records = false;
  return std::move(profiler().ranges);
}

}  // namespace emulated

nvtxDomainHandle_t nvtxDomainCreateA(const char* name) { return new nvtxDomainRegistration_st{name}; }

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (range->version != NVTX_VERSION || range->size != sizeof *range ||
      range->messageType != NVTX_MESSAGE_TYPE_ASCII)
    return -1;
  std::string path = open_ranges.empty() ? domain->name : open_ranges.back();
  path += std::string("/") + range->message.ascii;
  open_ranges.push_back(path);
  const std::lock_guard lock(profiler().mutex);
  if (profiler().records) profiler().ranges.push_back(std::move(path));
  return static_cast<int>(open_ranges.size()) - 1;
}

int nvtxDomainRangePop(nvtxDomainHandle_t) {
  if (open_ranges.empty()) return -1;
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}
