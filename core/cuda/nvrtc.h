// Kernels compiled at run time. The machine code is cached in files.
#pragma once
#include <cuda_runtime.h>

#include <filesystem>
#include <string>

namespace espalier::cu {

/// The machine code of a self-contained source for an architecture (90 for compute capability 9.0), by NVRTC;
/// PTX if that is newer than NVRTC. Throws Error with the compiler's log and the source, its lines numbered.
std::string compile_to_machine_code(const std::string& source, int architecture);

/// The kernel of that name in a self-contained source, for the current device. It stays loaded. Compiled once
/// in a process, and once on a machine if there is a cache_folder().
cudaKernel_t compiled_kernel(const std::string& source, const char* name);

/// A cache of machine code by source and architecture, in files of a folder. Damaged files and those of
/// another Espalier or NVRTC count as missing. An empty folder name disables it. Files that cannot be read or
/// written are no error.
class MachineCodeFiles {
 public:
  explicit MachineCodeFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// Empty if there is none.
  std::string find(const std::string& source, int architecture) const;
  void keep(const std::string& source, int architecture, const std::string& code) const;
  std::filesystem::path file(const std::string& source, int architecture) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace espalier::cu
