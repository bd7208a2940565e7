// Programs of this build as child processes.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "places.h"
#include "temporary_folder.h"

namespace espalier::testing {

struct Outcome {
  int code = -1;
  std::string out, error;
};

/// What runs a program of this build in a folder, without a cache: its path and arguments follow.
inline std::string command_in(const TemporaryFolder& folder,
                              const std::string& environment = "ESPALIER_CACHE=off") {
  return "cd " + folder.path().string() + " && " + environment + " " + places::emulator + " ";
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Runs a program, given by its path and arguments, in a folder, which keeps what it prints.
inline Outcome run_program(const TemporaryFolder& folder, const std::string& command) {
  const int status = std::system((command_in(folder) + command + " >out 2>error").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder / "out"), text_of(folder / "error")};
}

}  // namespace espalier::testing
