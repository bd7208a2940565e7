// The order of syncs: a file before it replaces another one, its folder before a checkpoint is complete. The
// program replaces fsync() and rename(), so it is separate from the other tests.
#define BOOST_TEST_MODULE durability
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/npy.h"
#include "espalier/executor/training/checkpoint.h"
#include "temporary_folder.h"

namespace esp = espalier;
using esp::testing::says;
using esp::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

using Log = std::vector<std::string>;
Log calls;          // "sync file", "sync folder <name>", "rename"
std::string fails;  // the kind of call that fails
int with = 0;       // with this errno
int passes = 0;     // calls of this kind that succeed before

bool is_to_fail(const std::string& call) {
  calls.push_back(call);
  return !fails.empty() && call.starts_with(fails) && passes-- <= 0;
}

/// Runs `f`, in which calls of `kind` fail after the first `after`, and returns all calls.
Log calls_of(const std::function<void()>& f, const std::string& kind = {}, int error = 0, int after = 0) {
  calls.clear();
  fails = kind, with = error, passes = after;
  f();
  fails.clear();
  return calls;
}

}  // namespace

extern "C" int fsync(int descriptor) {
  struct stat status {};
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const bool known = ::fstat(descriptor, &status) == 0 && ::readlink(link.c_str(), path, sizeof path - 1) > 0;
  const bool folder = known && S_ISDIR(status.st_mode);
  if (is_to_fail(folder ? "sync folder " + fs::path(path).filename().string() : "sync file"))
    return errno = with, -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (is_to_fail("rename")) return errno = with, -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace {

void write_whole(const fs::path& path, const std::string& text) {
  esp::AtomicFile file(path);
  file.write(text);
  file.commit();
}
/// Writes a checkpoint whose first optimizer setting is `number`.
void leave(const fs::path& folder, double number) {
  esp::Checkpoint c;
  c.optimizer = {"none", {{"number", number}}};
  esp::write_checkpoint(folder, c);
}
double number_in(const fs::path& folder) {
  return esp::read_checkpoint(folder).checkpoint.optimizer->values.at(0).second;
}

}  // namespace

/// Disables the file of measured products, which would be synced, too.
struct NoCache {
  NoCache() { setenv("ESPALIER_CACHE", "off", 1); }
};
BOOST_TEST_GLOBAL_FIXTURE(NoCache);

BOOST_AUTO_TEST_CASE(a_file_reaches_the_disk_before_it_takes_its_place) {
  const TemporaryFolder folder;
  BOOST_TEST(calls_of([&] { write_whole(folder / "f", "text"); }) == (Log{"sync file", "rename"}));
  BOOST_TEST(calls_of([&] { esp::data::write_npy(folder / "f", esp::ones({2})); }) ==
             (Log{"sync file", "rename"}));
  BOOST_TEST(calls_of([&] { esp::AtomicFile(folder / "g").write("half"); }) == Log{});
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_leaves_the_old_file) {
  const TemporaryFolder folder;
  folder.write("f", "before");
  for (const std::string call : {"sync file", "rename"})
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
      const auto write = [&] {
        BOOST_CHECK_EXCEPTION(write_whole(folder / "f", "after"), esp::FileError,
                              says({"/f cannot be ", std::strerror(error)}));
      };
      calls_of(write, call, error);
      BOOST_TEST(esp::read_file(folder / "f") == "before");
      BOOST_TEST(folder.files() == 1u);
    }
}

BOOST_AUTO_TEST_CASE(a_file_system_that_cannot_sync_is_no_error) {
  const TemporaryFolder folder;
  for (const int error : {EINVAL, ENOTSUP}) {
    const std::string text = std::to_string(error);
    calls_of([&] { write_whole(folder / "f", text); }, "sync", error);
    BOOST_TEST(esp::read_file(folder / "f") == text);
    calls_of([&] { leave(folder / "run", error); }, "sync", error);
    BOOST_TEST(number_in(folder / "run") == error);
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_reaches_the_disk_with_its_name) {
  const TemporaryFolder folder;
  const std::string above = folder.path().filename().string();
  BOOST_TEST(calls_of([&] { esp::make_checkpoint_folder(folder / "run"); }) == Log{"sync folder " + above});
  const Log each{"sync file", "rename", "sync folder run"};
  for (int i = 1; i <= 3; ++i) BOOST_TEST(calls_of([&] { leave(folder / "run", i); }) == each);
  BOOST_TEST(calls_of([&] { leave(folder / "a" / "b", 0); }) ==
             (Log{"sync folder a", "sync file", "rename", "sync folder b"}));
  BOOST_TEST(calls_of([&] { (void)esp::read_checkpoint(folder / "run"); }) == Log{});
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_leaves_the_checkpoints_before) {
  const TemporaryFolder folder;
  for (int i = 1; i <= 3; ++i) leave(folder.path(), i);
  const auto fail = [&](double number, const std::string& call) {
    const auto write = [&] {
      BOOST_CHECK_EXCEPTION(leave(folder.path(), number), esp::FileError,
                            says({folder.path().filename().string(), std::strerror(EIO)}));
    };
    calls_of(write, call, EIO);
  };
  fail(4, "sync file");
  fail(4, "rename");
  BOOST_TEST(number_in(folder.path()) == 3);
  BOOST_TEST(folder.files() == 2u);
  // Until the folder is synced, the new name may be missing after a crash, so no old file is removed.
  fail(4, "sync folder");
  for (const char* name : {"checkpoint-000002.safetensors", "checkpoint-000003.safetensors"})
    BOOST_TEST(fs::exists(folder / name));
  leave(folder.path(), 5);
  BOOST_TEST(number_in(folder.path()) == 5);
  BOOST_TEST(folder.files() == 2u);
}

BOOST_AUTO_TEST_CASE(a_run_whose_checkpoint_fails_ends_with_the_error) {
  const TemporaryFolder folder;
  const esp::testing::CheckpointProgram program;
  const auto run = [&] {
    program.executor.execute({.epochs = 3, .progress = false, .checkpoint = folder.path()});
  };
  calls_of([&] { BOOST_CHECK_EXCEPTION(run(), esp::FileError, says({std::strerror(EIO)})); }, "sync file",
           EIO, 1);
  const esp::testing::CheckpointProgram other;
  other.executor.resume(folder.path());
  BOOST_TEST(other.executor.execute({.epochs = 1, .progress = false}).epochs.size() == 1u);
  program.executor.resume(folder.path());
  BOOST_TEST(program.state() == other.state());
}
