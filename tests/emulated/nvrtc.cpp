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

/// The folder of a cache that programs share, which the environment variable ESPALIER_EMULATED_KERNELS names.
const fs::path& shared_folder() {
  static const fs::path folder = [] {
    const char* named = std::getenv("ESPALIER_EMULATED_KERNELS");
    return fs::path(named != nullptr ? named : "");
  }();
  return folder;
}
/// What kernels depend on beside their sources.
size_t common_hash() {
  static const size_t hash = [] {
    std::string text = compiler() + compiler_flags;
    for (const auto& header : fs::directory_iterator(ESPALIER_EMULATED_INCLUDE)) text += read(header.path());
    return std::hash<std::string>()(text);
  }();
  return hash;
}
fs::path temporary_folder() {
  std::string name = (fs::temp_directory_path() / "emulated_nvrtc_XXXXXX").string();
  return mkdtemp(name.data()) != nullptr ? name : std::string();
}
std::string defines() {
  return " -D__CUDACC_RTC__=1 -D__CUDA_ARCH__=900 -DESPALIER_EMULATED_CUDA=1 -I" +
         quoted(ESPALIER_EMULATED_INCLUDE);
}

/// The length of the functions before the kernels, which many sources share: up to the end of the last
/// namespace. 0 if that is too short to be worth a precompiled header.
size_t functions_before_kernels(const std::string& source) {
  constexpr size_t shortest = 4096;
  const size_t last = source.rfind("\n}  // namespace");
  if (last == std::string::npos) return 0;
  const size_t end = source.find('\n', last + 1);
  return end == std::string::npos || end < shortest || source.find("__global__") < end ? 0 : end + 1;
}

/// The header of this text, precompiled once for all programs; "" if it cannot be.
fs::path precompiled(const std::string& text, const std::string& flags) {
  static std::mutex one;
  const std::lock_guard lock(one);
  std::ostringstream name;
  name << "header_" << std::hex << hash_of(text.data(), text.size()) << common_hash()
       << std::hash<std::string>()(flags);
  const fs::path folder = shared_folder() / name.str();
  const fs::path header = folder / "functions.h", made = folder / "functions.h.gch";
  std::error_code error;
  if (fs::exists(made, error)) return header;
  const fs::path own = folder.string() + "." + std::to_string(getpid());
  write(own / "functions.h", text);
  const std::string command = compiler() + compiler_flags + defines() + flags + " -x c++-header " +
                              quoted((own / "functions.h").string()) + " -o " +
                              quoted((own / "functions.h.gch").string()) + " >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  if (status == 0) fs::rename(own, folder, error);  // fails if another program was first
  fs::remove_all(own, error);
  return fs::exists(made, error) ? header : fs::path();
}

/// Runs the compiler; returns the shared object, or "".
std::string compile(_nvrtcProgram& program, const std::string& flags) {
  const fs::path folder = temporary_folder();
  if (folder.empty()) return {};
  const std::string first_line = "#line 1 \"" + program.name + "\"\n";
  fs::path included = ESPALIER_EMULATED_INCLUDE "/emulated_rtc.h";
  std::string text = first_line + program.source;
  if (const size_t shared =
          program.headers.empty() && !shared_folder().empty() ? functions_before_kernels(program.source) : 0;
      shared > 0) {
    const std::string functions = program.source.substr(0, shared);
    const fs::path header = precompiled("#include \"emulated_rtc.h\"\n" + first_line + functions, flags);
    if (!header.empty()) {
      included = header;
      text = "#line " + std::to_string(1 + std::count(functions.begin(), functions.end(), '\n')) + " \"" +
             program.name + "\"\n" + program.source.substr(shared);
    }
  }
  text += "\n#line 1 \"emulated\"\n";
  for (const std::string& name : kernels_in(program.source)) {
    text += "extern \"C\" void " + name + "_emulated(void** parameters) { ::emulated::call(&" + name +
            ", parameters); }\n";
    text += "extern \"C\" size_t " + name + "_emulated_sizes(size_t* sizes) { return ::emulated::sizes(&" +
            name + ", sizes); }\n";
  }
  write(folder / "source.cpp", text);
  for (const auto& [name, header] : program.headers) write(folder / "include" / name, header);
  const std::string command =
      compiler() + compiler_flags + defines() + " -I" + quoted((folder / "include").string()) + " -include " +
      quoted(included.string()) + flags + " " + quoted((folder / "source.cpp").string()) + " -o " +
      quoted((folder / "kernels.so").string()) + " >" + quoted((folder / "log").string()) + " 2>&1";
  const int status = std::system(command.c_str());
  program.log = read(folder / "log");
  std::string object = status == 0 ? read(folder / "kernels.so") : std::string();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return object;
}

/// A cache of compiled sources, for tests that compile the same sources repeatedly.
class Compiled {
 public:
  /// "" if a source is not compiled yet.
  std::string find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = objects_.find(key);
    if (known != objects_.end()) return known->second;
    return shared_folder().empty() ? std::string() : read(file(key));
  }
  void keep(const std::string& key, const std::string& object) {
    const std::lock_guard lock(mutex_);
    objects_[key] = object;
    if (shared_folder().empty()) return;
    const fs::path whole = file(key), part = whole.string() + "." + std::to_string(getpid());
    write(part, object);
    std::error_code ignored;
    fs::rename(part, whole, ignored);  // at once, since other programs read it
  }

 private:
  fs::path file(const std::string& key) const {
    std::ostringstream name;
    name << std::hex << hash_of(key.data(), key.size()) << common_hash() << std::hash<std::string>()(key);
    return shared_folder() / name.str();
  }

  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
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
