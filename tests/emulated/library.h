// Kernels that are compiled and loaded at run time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulated_device.h"

namespace emulated {

/// The header of NVRTC's images, before the shared object: detects damaged images before they are loaded.
struct ImageHeader {
  char magic[16];
  unsigned long long bytes;
  unsigned long long hash;
};
inline constexpr char image_magic[16] = "emulated cubin\n";
unsigned long long hash_of(const char* data, size_t bytes);

/// A loaded shared object; it stays loaded until its last kernel ends.
struct SharedObject {
  explicit SharedObject(void* handle) : handle(handle) {}
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  void* const handle;
};

}  // namespace emulated

struct CUkern_st {
  std::shared_ptr<emulated::SharedObject> object;
  void (*entry)(void** parameters);
  std::vector<size_t> sizes;  ///< of the parameters

  /// One thread of the kernel, with copies of the arguments.
  std::function<void()> bind(void** arguments) const;
};

struct CUlib_st {
  std::shared_ptr<emulated::SharedObject> object;
  std::unordered_map<std::string, std::unique_ptr<CUkern_st>> kernels;
};
