// The part of NVTX that Espalier uses. A profiler is always attached: it keeps the ranges while a test asks
// for them (emulated_cuda.h).
#pragma once
#include <cstdint>

extern "C" {
struct nvtxDomainRegistration_st;
typedef nvtxDomainRegistration_st* nvtxDomainHandle_t;

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE static_cast<uint16_t>(sizeof(nvtxEventAttributes_t))
#define NVTX_MESSAGE_TYPE_ASCII 1

struct nvtxEventAttributes_t {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  union {
    uint64_t ullValue;
    double dValue;
  } payload;
  int32_t messageType;
  union {
    const char* ascii;
    const wchar_t* unicode;
  } message;
};

nvtxDomainHandle_t nvtxDomainCreateA(const char* name);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);
}
