// What the programs have in common: how they fail, and how they name files and devices.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/device.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/tensor.h"

namespace CLI {
class App;
}

namespace espalier::programs {

/// Errors of a program have no source line: it is none of the user's.
inline constexpr std::source_location nowhere{};

/// The codes with which programs end, those of sysexits.h.
enum Exit : int {
  ok = 0,
  usage = 64,
  bad_data = 65,
  no_input = 66,
  unavailable = 69,
  internal = 70,
  cannot_create = 73
};

/// What ends a program: a message of one line and its code.
struct Failure {
  Exit code;
  std::string message;
};

/// Adds what all programs have: --device, --threads, --version.
struct CommonOptions {
  std::vector<std::string> devices;
  int threads = 0;
  void add_to(CLI::App& app);
  /// Sets the number of threads, and returns the devices. Throws Failure.
  std::vector<Device> apply() const;
};

/// Parses the command line and runs `body`. Every error is one line on standard error, which begins with the
/// name of the program.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

/// A check of an option: its text is a whole number in that range, in decimal digits.
std::function<std::string(const std::string&)> whole_number(uint64_t least, uint64_t most);

/// Throws Failure unless the file can be opened.
void check_input(const std::filesystem::path& file);
/// Throws Failure unless a file can be written there: before the work, not behind it.
void check_output(const std::filesystem::path& file);
/// Whether two paths lead to one file, which need not exist.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);
/// Runs `write`, whose FileErrors end the program as a file that cannot be created.
void write_output(const std::function<void()>& write);

/// "x=x.npy" as {"x", "x.npy"}; without '=', the name is empty.
std::pair<std::string, std::filesystem::path> named_file(const std::string& argument);

/// A tensor of that type, which NumPy writes as float64 or int64 by default: reals become other reals, and
/// integers other integers. Throws Failure for other types.
Tensor converted(const Tensor& tensor, DType dtype, const std::string& name);

/// "float32 [-1, 64]"
std::string text_of(DType dtype, const Shape& shape);

}  // namespace espalier::programs
