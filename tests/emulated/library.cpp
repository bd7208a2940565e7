#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace emulated {
namespace {

/// Loads a shared object from memory, through a temporary file. Each file has a new name, since the loader
/// identifies objects by name.
void* load(const char* data, size_t bytes) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/emulated_cubin_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  size_t written = 0;
  while (written < bytes) {
    const ssize_t n = write(file, data + written, bytes - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  close(file);
  void* handle = written == bytes ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path.c_str());
  return handle;
}

}  // namespace

unsigned long long hash_of(const char* data, size_t bytes) {
  unsigned long long hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<unsigned char>(data[i])) * 0x100000001b3ull;
  return hash;
}

SharedObject::~SharedObject() { dlclose(handle); }

}  // namespace emulated

using namespace emulated;

std::function<void()> CUkern_st::bind(void** arguments) const {
  // Each parameter is aligned for any type.
  struct Copies {
    std::vector<std::max_align_t> memory;
    std::vector<void*> pointers;
  };
  constexpr size_t unit = sizeof(std::max_align_t);
  const auto copies = std::make_shared<Copies>();
  size_t units = 0;
  for (const size_t size : sizes) units += (size + unit - 1) / unit;
  copies->memory.resize(units);
  std::max_align_t* next = copies->memory.data();
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::memcpy(next, arguments[i], sizes[i]);
    copies->pointers.push_back(next);
    next += (sizes[i] + unit - 1) / unit;
  }
  return [object = object, entry = entry, copies] { entry(copies->pointers.data()); };
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  return api("cudaLibraryLoadData", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (library == nullptr || code == nullptr) return cudaErrorInvalidValue;
    ImageHeader header;
    if (std::memcmp(code, image_magic, sizeof image_magic) != 0)
      return r.complain(cudaErrorInvalidKernelImage, "what is loaded does not come from the emulated NVRTC");
    std::memcpy(&header, code, sizeof header);
    const char* data = static_cast<const char*>(code) + sizeof header;
    if (hash_of(data, header.bytes) != header.hash)
      return r.complain(cudaErrorInvalidKernelImage, "the code of a library is damaged");
    void* handle = load(data, header.bytes);
    if (handle == nullptr) {
      const char* reason = dlerror();
      return r.complain(cudaErrorInvalidKernelImage,
                        reason != nullptr ? reason : "a file could not be written");
    }
    auto made = std::make_unique<CUlib_st>();
    made->object = std::make_shared<SharedObject>(handle);
    reinterpret_cast<void (*)(Device*)>(dlsym(handle, "espalier_emulated_attach"))(&the_device);
    *library = made.release();
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return api("cudaLibraryUnload", Needs::Context, [&](Runtime& r, Call&) {
    if (library == nullptr) return cudaErrorInvalidResourceHandle;
    for (const auto& [name, kernel] : library->kernels) {
      r.kernels.erase(kernel.get());
      r.dynamic_shared.erase(kernel.get());
    }
    delete library;
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return api("cudaLibraryGetKernel", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (library == nullptr || kernel == nullptr || name == nullptr) return cudaErrorInvalidValue;
    auto& known = library->kernels[name];
    if (!known) {
      void* const handle = library->object->handle;
      void* entry = dlsym(handle, (std::string(name) + "_emulated").c_str());
      void* sizes = dlsym(handle, (std::string(name) + "_emulated_sizes").c_str());
      if (entry == nullptr || sizes == nullptr) {
        library->kernels.erase(name);
        return cudaErrorSymbolNotFound;
      }
      known = std::make_unique<CUkern_st>();
      known->object = library->object;
      known->entry = reinterpret_cast<void (*)(void**)>(entry);
      size_t found[64];
      const size_t count = reinterpret_cast<size_t (*)(size_t*)>(sizes)(found);
      known->sizes.assign(found, found + count);
      r.kernels.insert(known.get());
    }
    *kernel = known.get();
    return cudaSuccess;
  });
}
