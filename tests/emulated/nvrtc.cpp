// NVRTC based on the host's compiler: its images are shared objects.
#include "nvrtc.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "library.h"
#include "runtime.h"

struct _nvrtcProgram {
  std::string source, name, log, image;
  std::map<std::string, std::string> headers;
  bool compiled = false, virtual_arch = false;
};

namespace emulated {
namespace {

namespace fs = std::filesystem;

constexpr int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// The names of kernels with C linkage: the last word before the parenthesis of their parameters.
std::vector<std::string> kernels_in(const std::string& source) {
  std::vector<std::string> names;
  const std::string mark = "__global__";
  for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at + 1)) {
    const std::string before = source.substr(at < 40 ? 0 : at - 40, at < 40 ? at : 40);
    size_t end = before.find_last_not_of(" \t\n");
    if (end == std::string::npos || end < 2 || before.compare(end - 2, 3, "\"C\"") != 0) continue;
    size_t open = source.find('(', at);
    const size_t bounds = source.find("__launch_bounds__", at);
    if (bounds != std::string::npos && bounds < open) open = source.find('(', source.find(')', open));
    if (open == std::string::npos) continue;
    size_t last = open;
    while (last > at && std::isspace(static_cast<unsigned char>(source[last - 1])) != 0) --last;
    size_t first = last;
    while (first > at &&
           (std::isalnum(static_cast<unsigned char>(source[first - 1])) != 0 || source[first - 1] == '_'))
      --first;
    names.push_back(source.substr(first, last - first));
  }
  return names;
}

/// Translates options of NVRTC to those of the host's compiler; false if NVRTC has no such option.
bool translate(const std::vector<std::string>& options, std::string& flags, _nvrtcProgram& program) {
  static const char* const without_meaning_here[] = {"default-device",
                                                     "device-as-default-execution-space",
                                                     "use_fast_math",
                                                     "fmad",
                                                     "ftz",
                                                     "prec-div",
                                                     "prec-sqrt",
                                                     "lineinfo",
                                                     "generate-line-info",
                                                     "G",
                                                     "device-debug",
                                                     "maxrregcount",
                                                     "w",
                                                     "disable-warnings",
                                                     "extra-device-vectorization",
                                                     "restrict",
                                                     "dopt",
                                                     "no-source-include",
                                                     "diag-suppress",
                                                     "minimal",
                                                     "split-compile",
                                                     "Xptxas",
                                                     "ptxas-options",
                                                     "dlto",
                                                     "extensible-whole-program",
                                                     "relocatable-device-code",
                                                     "rdc",
                                                     "pch",
                                                     "no-cache"};
  flags = " -std=c++17";
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& option = options[i];
    if (option.size() < 2 || option[0] != '-') return false;
    const size_t dashes = option[1] == '-' ? 2 : 1;
    std::string name = option.substr(dashes), value;
    if (dashes == 1 && (name[0] == 'D' || name[0] == 'U' || name[0] == 'I')) {
      flags += " " + quoted(name.size() > 1 || i + 1 == options.size() ? option : option + options[++i]);
      continue;
    }
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const bool takes_value = name == "gpu-architecture" || name == "arch" || name == "std" ||
                             name == "define-macro" || name == "undefine-macro" || name == "include-path" ||
                             name == "maxrregcount" || name == "Xptxas" || name == "ptxas-options" ||
                             name == "diag-suppress";
    if (takes_value && value.empty()) {
      if (i + 1 == options.size()) return false;
      value = options[++i];
    }
    if (name == "gpu-architecture" || name == "arch") {
      program.virtual_arch = value.rfind("compute_", 0) == 0;
      if (!program.virtual_arch && value.rfind("sm_", 0) != 0) return false;
      const int number = std::atoi(value.c_str() + value.find('_') + 1);
      if (std::find(std::begin(architectures), std::end(architectures), number) == std::end(architectures))
        return false;
    } else if (name == "std") {
      if (value != "c++11" && value != "c++14" && value != "c++17" && value != "c++20") return false;
      flags += " -std=" + (value < "c++17" ? std::string("c++17") : value);
    } else if (name == "define-macro") {
      flags += " " + quoted("-D" + value);
    } else if (name == "undefine-macro") {
      flags += " " + quoted("-U" + value);
    } else if (name == "include-path") {
      flags += " " + quoted("-I" + value);
    } else if (std::none_of(std::begin(without_meaning_here), std::end(without_meaning_here),
                            [&](const char* known) { return name == known; })) {
      return false;
    }
  }
  return true;
}

std::string compiler() {
  const char* chosen = std::getenv("CXX");
  return chosen != nullptr && *chosen != '\0' ? chosen : ESPALIER_EMULATED_COMPILER;
}

// Kernels of tests compile for longer than they run, so they are not optimized.
constexpr const char* compiler_flags =
    " -O0 -shared -fPIC -w -fno-math-errno -ffp-contract=off -fvisibility=default"
    " -fsanitize=alignment -fno-sanitize-recover=alignment"
    " -nostdlib";  // the program has all that it calls; linking libraries would take half of the time

/// Runs the compiler; returns the shared object, or "".
std::string compile(_nvrtcProgram& program, const std::string& flags) {
  std::string folder_name = (fs::temp_directory_path() / "emulated_nvrtc_XXXXXX").string();
  if (mkdtemp(folder_name.data()) == nullptr) return {};
  const fs::path folder = folder_name;
  std::string text = "#line 1 \"" + program.name + "\"\n" + program.source + "\n#line 1 \"emulated\"\n";
  for (const std::string& name : kernels_in(program.source)) {
    text += "extern \"C\" void " + name + "_emulated(void** parameters) { ::emulated::call(&" + name +
            ", parameters); }\n";
    text += "extern \"C\" size_t " + name + "_emulated_sizes(size_t* sizes) { return ::emulated::sizes(&" +
            name + ", sizes); }\n";
  }
  write(folder / "source.cpp", text);
  for (const auto& [name, header] : program.headers) write(folder / "include" / name, header);
  const std::string command =
      compiler() + compiler_flags + " -D__CUDACC_RTC__=1 -D__CUDA_ARCH__=900 -DESPALIER_EMULATED_CUDA=1 -I" +
      quoted((folder / "include").string()) + " -I" + quoted(ESPALIER_EMULATED_INCLUDE) + " -include " +
      quoted(ESPALIER_EMULATED_INCLUDE "/emulated_rtc.h") + flags + " " +
      quoted((folder / "source.cpp").string()) + " -o " + quoted((folder / "kernels.so").string()) + " >" +
      quoted((folder / "log").string()) + " 2>&1";
  const int status = std::system(command.c_str());
  program.log = read(folder / "log");
  std::string object = status == 0 ? read(folder / "kernels.so") : std::string();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return object;
}

/// A cache of compiled sources, for tests that compile the same sources repeatedly. Programs share the folder
/// that the environment variable ESPALIER_EMULATED_KERNELS names.
class Compiled {
 public:
  /// "" if a source is not compiled yet.
  std::string find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = objects_.find(key);
    if (known != objects_.end()) return known->second;
    return folder_.empty() ? std::string() : read(file(key));
  }
  void keep(const std::string& key, const std::string& object) {
    const std::lock_guard lock(mutex_);
    objects_[key] = object;
    if (folder_.empty()) return;
    const fs::path whole = file(key), part = whole.string() + "." + std::to_string(getpid());
    write(part, object);
    std::error_code ignored;
    fs::rename(part, whole, ignored);  // at once, since other programs read it
  }

 private:
  static std::string folder() {
    const char* named = std::getenv("ESPALIER_EMULATED_KERNELS");
    return named != nullptr ? named : "";
  }
  /// What kernels depend on beside their sources.
  static std::string common_text() {
    std::string text = compiler() + compiler_flags;
    for (const auto& header : fs::directory_iterator(ESPALIER_EMULATED_INCLUDE)) text += read(header.path());
    return text;
  }
  fs::path file(const std::string& key) const {
    std::ostringstream name;
    name << std::hex << hash_of(key.data(), key.size()) << common_ << std::hash<std::string>()(key);
    return folder_ / name.str();
  }

  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  const fs::path folder_ = folder();
  const size_t common_ = folder_.empty() ? 0 : std::hash<std::string>()(common_text());
};
Compiled& compiled() {
  static Compiled all;
  return all;
}

bool injected(const char* function) {
  Runtime& r = runtime();
  const Call call;
  cudaError_t ignored = cudaSuccess;
  return r.inject(function, ignored);
}

}  // namespace
}  // namespace emulated

using namespace emulated;

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
  return "NVRTC_ERROR unknown";
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *major = 13, *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *count = static_cast<int>(std::size(architectures));
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  if (archs == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::copy(std::begin(architectures), std::end(architectures), archs);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int header_count,
                               const char* const* headers, const char* const* include_names) {
  if (injected("nvrtcCreateProgram")) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
  if (program == nullptr || source == nullptr || header_count < 0) return NVRTC_ERROR_INVALID_INPUT;
  if (header_count > 0 && (headers == nullptr || include_names == nullptr)) return NVRTC_ERROR_INVALID_INPUT;
  auto* made = new _nvrtcProgram;
  made->source = source;
  made->name = name != nullptr && *name != '\0' ? name : "default_program";
  for (int i = 0; i < header_count; ++i) made->headers[include_names[i]] = headers[i];
  *program = made;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (program == nullptr || *program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char* const* options) {
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  {
    const Call call;
    ++runtime().counters.compilations;
  }
  if (injected("nvrtcCompileProgram")) {
    program->log = "error: an injected failure";
    return NVRTC_ERROR_COMPILATION;
  }
  std::string flags;
  if (!translate({options, options + option_count}, flags, *program)) {
    program->log = "nvrtc: error: invalid value or option";
    return NVRTC_ERROR_INVALID_OPTION;
  }
  std::string key = flags + '\n' + program->source;
  for (const auto& [name, header] : program->headers) key += '\n' + name + '\n' + header;
  std::string object = compiled().find(key);
  if (object.empty()) {
    object = compile(*program, flags);
    if (object.empty()) return NVRTC_ERROR_COMPILATION;
    compiled().keep(key, object);
  }
  ImageHeader header{};
  std::memcpy(header.magic, image_magic, sizeof image_magic);
  header.bytes = object.size();
  header.hash = hash_of(object.data(), object.size());
  program->image.assign(reinterpret_cast<const char*>(&header), sizeof header);
  program->image += object;
  program->compiled = true;
  return NVRTC_SUCCESS;
}

// A virtual architecture has no cubin; the image stands for PTX.
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr || size == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  if (!program->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
  *size = program->virtual_arch ? 0 : program->image.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  if (program == nullptr || cubin == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  if (!program->compiled || program->virtual_arch) return NVRTC_ERROR_INVALID_PROGRAM;
  std::memcpy(cubin, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr || size == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  if (!program->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
  *size = program->image.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  if (program == nullptr || ptx == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  if (!program->compiled) return NVRTC_ERROR_INVALID_PROGRAM;
  std::memcpy(ptx, program->image.data(), program->image.size());
  ptx[program->image.size()] = '\0';
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr || size == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  if (program == nullptr || log == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
