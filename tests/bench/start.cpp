// From the start of a process to its first result: espalier-run computes one row of a saved classifier of
// digits, beside a program that loads the same libraries and does nothing:
//   bench_start ESPALIER_RUN FLOOR [rounds]
// Prints medians in milliseconds: of the time, and of the processor time of user and system.
#include <espalier/espalier.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "timing.h"
namespace esp = espalier;
namespace fs = std::filesystem;

namespace {

struct Contestant {
  std::string name;
  std::vector<std::string> command;
  std::vector<double> times = {}, processor = {};
};

double milliseconds(const timeval& time) {
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
}

void run(Contestant& contestant) {
  std::vector<char*> arguments;
  for (std::string& argument : contestant.command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  int status = 0;
  rusage usage{};
  const double seconds = bench::seconds([&] {
    const pid_t child = vfork();
    if (child == 0) {
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child) status = -1;
  });
  if (status != 0) {
    std::fprintf(stderr, "%s failed\n", arguments[0]);
    std::exit(1);
  }
  contestant.times.push_back(seconds * 1e3);
  contestant.processor.push_back(milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime));
}

/// The network of samples/digits.cpp.
void save_classifier(const fs::path& plan) {
  const esp::nn::Sequential network{esp::nn::Dense(128), esp::nn::Relu(), esp::nn::Dropout(0.2),
                                    esp::nn::Dense(10)};
  const esp::Variable x = esp::placeholder("x", {-1, 64});
  esp::softmax(network(x)).get_executor({.mode = esp::Mode::inference}).save(plan);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("usage: bench_start ESPALIER_RUN FLOOR [rounds]\n", stderr), 2;
  const fs::path folder = fs::temp_directory_path() / ("bench_start_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string plan = folder / "digits.plan", row = folder / "row.npy", result = folder / "result.npy";
  esp::seed(1);
  save_classifier(plan);
  esp::data::write_npy(row, esp::rand({1, 64}));
  std::vector<Contestant> all{{"floor", {argv[2]}},
                              {"version", {argv[1], "--version"}},
                              {"run", {argv[1], plan, "--input", row, "--output", result}}};
  const int output = dup(STDOUT_FILENO), nothing = open("/dev/null", O_WRONLY);
  dup2(nothing, STDOUT_FILENO);
  for (int round = argc > 3 ? std::atoi(argv[3]) : 50; round > 0; --round)
    for (Contestant& contestant : all) run(contestant);
  dup2(output, STDOUT_FILENO);
  for (const Contestant& contestant : all) {
    bench::report("start_" + contestant.name + "_ms", bench::median(contestant.times));
    bench::report("start_" + contestant.name + "_processor_ms", bench::median(contestant.processor));
  }
  fs::remove_all(folder);
}
