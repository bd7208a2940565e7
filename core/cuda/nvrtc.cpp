#include "espalier/core/cuda/nvrtc.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/files/crc64.h"
#include "espalier/core/files/file.h"
#include "espalier/core/version.h"

namespace espalier::cu {

namespace {

void check_nvrtc(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS) throw Error(fmt::format("{}: {}", what, nvrtcGetErrorString(result)));
}

struct Program {
  explicit Program(const std::string& source) {
    check_nvrtc(nvrtcCreateProgram(&handle, source.c_str(), "espalier.cu", 0, nullptr, nullptr),
                "nvrtcCreateProgram");
  }
  ~Program() { nvrtcDestroyProgram(&handle); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string log() const {
    size_t size = 0;
    if (nvrtcGetProgramLogSize(handle, &size) != NVRTC_SUCCESS || size == 0) return {};
    std::string text(size, '\0');
    if (nvrtcGetProgramLog(handle, text.data()) != NVRTC_SUCCESS) return {};
    text.resize(size - 1);  // it ends with a zero
    return text;
  }

  nvrtcProgram handle = nullptr;
};

std::string numbered(const std::string& source) {
  std::string text;
  int number = 0;
  for (size_t at = 0; at < source.size();) {
    const size_t end = std::min(source.find('\n', at), source.size());
    text += fmt::format("{:4} {}\n", ++number, std::string_view(source).substr(at, end - at));
    at = end + 1;
  }
  return text;
}

uint64_t checksum(const std::string& bytes) {
  Crc64 sum;
  sum.add(bytes.data(), bytes.size());
  return sum.value();
}

/// The header of a file of machine code: everything the code depends on, its size and its checksum.
std::string header(const std::string& source, int architecture, const std::string& code) {
  int major = 0, minor = 0;
  check_nvrtc(nvrtcVersion(&major, &minor), "nvrtcVersion");
  return fmt::format("Espalier {}, NVRTC {}.{}, sm_{}, source of {} bytes, code of {} bytes, {:016x}\n",
                     version, major, minor, architecture, source.size(), code.size(), checksum(code));
}

/// A kernel of this process, and the lock under which it is made.
struct Loaded {
  std::mutex mutex;
  cudaKernel_t kernel = nullptr;
};
struct AllLoaded {
  std::mutex mutex;
  std::map<std::tuple<int, std::string, std::string>, std::shared_ptr<Loaded>> kernels;
};
AllLoaded& all_loaded() {
  static auto* all = new AllLoaded;  // kernels stay loaded: static tensors outlive main
  return *all;
}

/// The newest architecture NVRTC knows that is no newer than this one; this one if there is none.
int known_architecture(int architecture) {
  int count = 0;
  check_nvrtc(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<size_t>(count));
  check_nvrtc(nvrtcGetSupportedArchs(known.data()), "nvrtcGetSupportedArchs");
  std::erase_if(known, [&](int each) { return each > architecture; });
  return known.empty() ? architecture : *std::ranges::max_element(known);
}

cudaKernel_t load(const std::string& code, const char* name) {
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t status = cudaLibraryGetKernel(&kernel, library, name); status != cudaSuccess) {
    (void)cudaLibraryUnload(library);
    check(status, "cudaLibraryGetKernel");
  }
  return kernel;
}

}  // namespace

std::string compile_to_machine_code(const std::string& source, int architecture) {
  const Program program(source);
  // A GPU newer than NVRTC gets PTX, which its driver compiles.
  const int known = known_architecture(architecture);
  const bool is_ptx = known != architecture;
  const std::string target = fmt::format("--gpu-architecture={}_{}", is_ptx ? "compute" : "sm", known);
  // Functions, divisions and small numbers as exact as the CPU's.
  const char* const options[] = {target.c_str(), "--std=c++17",      "--ftz=false",        "--prec-div=true",
                                 "--fmad=true",  "--prec-sqrt=true", "--no-source-include"};
  const nvrtcResult result = nvrtcCompileProgram(program.handle, std::size(options), options);
  if (result == NVRTC_ERROR_COMPILATION)
    throw Error(fmt::format("a kernel for {} cannot be compiled:\n{}\n{}", target.substr(19), program.log(),
                            numbered(source)));
  check_nvrtc(result, "nvrtcCompileProgram");
  size_t size = 0;
  check_nvrtc((is_ptx ? nvrtcGetPTXSize : nvrtcGetCUBINSize)(program.handle, &size), "nvrtcGetCUBINSize");
  std::string code(size, '\0');
  check_nvrtc((is_ptx ? nvrtcGetPTX : nvrtcGetCUBIN)(program.handle, code.data()), "nvrtcGetCUBIN");
  return code;
}

std::filesystem::path MachineCodeFiles::file(const std::string& source, int architecture) const {
  return folder_ / fmt::format("{:016x}_sm_{}.kernel", checksum(source), architecture);
}

std::string MachineCodeFiles::find(const std::string& source, int architecture) const {
  if (folder_.empty()) return {};
  const std::filesystem::path path = file(source, architecture);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  try {
    const std::string all = read_file(path);
    const size_t begin = all.find('\n') + 1;
    if (begin == 0 || all.compare(begin, source.size(), source) != 0) return {};
    const std::string code = all.substr(begin + source.size());
    return all.compare(0, begin, header(source, architecture, code)) == 0 ? code : std::string();
  } catch (const FileError&) {
    return {};  // compiled again
  }
}

void MachineCodeFiles::keep(const std::string& source, int architecture, const std::string& code) const {
  if (folder_.empty()) return;
  try {
    std::filesystem::create_directories(folder_);
    AtomicFile to(file(source, architecture));
    to.write(header(source, architecture, code) + source + code);
    to.commit();
  } catch (const FileError&) {  // the next process compiles it again
  } catch (const std::filesystem::filesystem_error&) {
  }
}

cudaKernel_t compiled_kernel(const std::string& source, const char* name) {
  const int architecture = limits().architecture;
  std::shared_ptr<Loaded> loaded;
  {
    AllLoaded& all = all_loaded();
    const std::lock_guard lock(all.mutex);
    auto& known = all.kernels[{architecture, name, source}];
    if (!known) known = std::make_shared<Loaded>();
    loaded = known;
  }
  const std::lock_guard lock(loaded->mutex);
  if (loaded->kernel) return loaded->kernel;
  const std::filesystem::path caches = cache_folder();
  const MachineCodeFiles files(caches.empty() ? caches : caches / "kernels");
  std::string code = files.find(source, architecture);
  if (code.empty()) {
    code = compile_to_machine_code(source, architecture);
    files.keep(source, architecture, code);
  }
  return loaded->kernel = load(code, name);
}

}  // namespace espalier::cu
