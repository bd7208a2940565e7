// The child processes of tests of checkpoints and interrupts:
//   checkpoint_process crash            kills training processes 200 times
//   checkpoint_process resume OPTIMIZER FOLDER EPOCHS RESULT
//                                       resumes from FOLDER and writes the outcome to RESULT
//   checkpoint_process train FOLDER     prints "ready" and trains until SIGINT
//   checkpoint_process stuck FOLDER     the same, with a callback that never returns
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <unordered_map>

#include "checkpoint_program.h"
#include "espalier/core/device.h"

namespace esp = espalier;
using esp::testing::CheckpointProgram;
namespace fs = std::filesystem;

namespace {

constexpr int64_t forever = 1'000'000'000;

/// Kills a training process at random times and resumes from its checkpoints: each must hold a state of the
/// uninterrupted run, and not an older one than before.
int crash() {
  constexpr int turns = 200;
  constexpr int64_t epochs = 3000;  // more than the trainers reach, also on a machine that is less busy later
  std::string name = (fs::temp_directory_path() / "espalier-crash-XXXXXX").string();
  if (!mkdtemp(name.data())) return std::perror("mkdtemp"), 2;
  const fs::path start = fs::path(name) / "start", folder = fs::path(name) / "run";
  esp::set_num_threads(1);  // threads do not survive a fork
  const CheckpointProgram trainer, program;
  program.executor.checkpoint(start);
  std::unordered_map<std::string, int64_t> states;  // the states of the uninterrupted run, and their steps
  program.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    states.try_emplace(program.state(), info.epoch * info.steps + info.step);
  });
  program.executor.execute({.epochs = epochs, .progress = false});
  const std::string end = program.state();

  // The longest lifetime of a trainer: the least time for five checkpoints.
  std::chrono::duration<double, std::micro> longest = std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.executor.resume(start);
    trainer.executor.execute(
        {.epochs = 1, .progress = false, .checkpoint = fs::path(name) / "timed", .checkpoint_every = 1});
    longest = std::min<decltype(longest)>(longest, std::chrono::steady_clock::now() - begin);
  }

  int64_t failures = 0, found = 0, leftovers = 0, last = -1;
  const auto fail = [&](int turn, const std::string& reason) {
    ++failures;
    std::fprintf(stderr, "turn %d: %s\n", turn, reason.c_str());
  };
  std::mt19937 random(7);
  for (int turn = 0; turn < turns; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      trainer.executor.resume(found ? folder : start);
      trainer.executor.execute(
          {.epochs = epochs, .progress = false, .checkpoint = folder, .checkpoint_every = 1});
      _exit(3);
    }
    std::this_thread::sleep_for(longest * (static_cast<double>(random() % 1000) / 1000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) fail(turn, "the trainer ended by itself");
    bool any = false;
    if (fs::exists(folder))
      for (const auto& entry : fs::directory_iterator(folder)) {
        any |= entry.path().extension() == ".safetensors";
        leftovers += entry.path().extension() == ".tmp";
      }
    if (!any && found) fail(turn, "the checkpoints are gone");
    if (!any) continue;
    ++found;
    try {
      program.executor.resume(folder);
    } catch (const std::exception& error) {
      fail(turn, error.what());
      continue;
    }
    const auto at = states.find(program.state());
    if (at == states.end()) fail(turn, "this is no state of the run");
    if (at != states.end() && at->second < last) fail(turn, "an older checkpoint is back");
    if (at != states.end()) last = at->second;
  }
  program.executor.execute({.epochs = epochs, .progress = false});
  if (program.state() != end) fail(turns, "the run ended elsewhere");
  fs::remove_all(name);
  std::printf("%ld of %d times there was a checkpoint; %ld steps, %ld leftovers, %ld failures\n", long(found),
              turns, long(last + 1), long(leftovers), long(failures));
  return failures || found < turns / 2;
}

int resume(const std::string& optimizer, const fs::path& folder, int64_t epochs, const fs::path& result) {
  const CheckpointProgram program(optimizer, 8, 5);
  program.executor.resume(folder);
  const esp::History history = program.executor.execute({.epochs = epochs, .progress = false});
  std::ofstream(result) << program.state() << esp::testing::bits(history);
  return 0;
}

int train(const fs::path& folder, bool stuck) {
  const CheckpointProgram program;
  program.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch != 1 || info.step != 0) return;
    std::puts("ready");
    std::fflush(stdout);
    while (stuck) pause();
  });
  const esp::History history = program.executor.execute(
      {.epochs = forever, .progress = false, .checkpoint = folder, .checkpoint_every = 1000});
  std::ofstream(folder / "state") << program.state();
  return history.interrupted && history.epochs.size() > 0 ? 0 : 4;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto is = [&](const char* mode, size_t count) {
    return arguments.size() == count && arguments[0] == mode;
  };
  try {
    if (is("crash", 1)) return crash();
    if (is("resume", 5)) return resume(arguments[1], arguments[2], std::stoll(arguments[3]), arguments[4]);
    if (is("train", 2) || is("stuck", 2)) return train(arguments[1], arguments[0] == "stuck");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 5;
  }
  return 6;
}
