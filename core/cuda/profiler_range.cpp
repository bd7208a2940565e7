#include "espalier/core/cuda/profiler_range.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstring>

namespace espalier::cu {

namespace {

/// Null if no profiler was attached when the process asked first.
nvtxDomainHandle_t profiler_domain() noexcept {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("Espalier");
  return domain;
}

}  // namespace

bool ProfilerRange::is_attached() noexcept { return profiler_domain() != nullptr; }

void ProfilerRange::push(std::string_view name) noexcept {
  char text[96];
  const size_t length = std::min(name.size(), sizeof text - 1);
  std::memcpy(text, name.data(), length);
  text[length] = 0;
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = text;
  (void)nvtxDomainRangePushEx(profiler_domain(), &range);
}

void ProfilerRange::pop() noexcept { (void)nvtxDomainRangePop(profiler_domain()); }

}  // namespace espalier::cu
