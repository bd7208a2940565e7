#include "espalier/executor/distributed.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/executor/communicator_mpi.h"
#include "espalier/executor/communicator_threads.h"
#include "espalier/executor/mpi/transport.h"

namespace espalier::distributed {
namespace {

// What Open MPI's mpirun says to those it begins, and then that of MPICH and its kin.
int from_launcher(const char* openmpi, const char* pmi, int otherwise) {
  if (const char* jobs = std::getenv("ESPALIER_DISTRIBUTED"); jobs && std::string_view(jobs) == "off")
    return otherwise;
  for (const char* name : {openmpi, pmi})
    if (const char* text = std::getenv(name)) {
      char* end = nullptr;
      const long number = std::strtol(text, &end, 10);
      if (end != text && !*end && number >= 0) return static_cast<int>(number);
    }
  return otherwise;
}

// Where the library for MPI may be.
std::vector<std::string> places() {
  if (const char* named = std::getenv("ESPALIER_MPI_LIBRARY")) return {named};
  std::vector<std::string> list;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&rank), &self) && self.dli_fname)
    list.push_back((std::filesystem::absolute(self.dli_fname).parent_path() / "libespalier_mpi.so").string());
  for (const char* place : {ESPALIER_MPI_BUILT, ESPALIER_MPI_INSTALLED, "libespalier_mpi.so"})
    list.push_back(place);
  return list;
}

struct Begun {
  const EspalierMpi* mpi = nullptr;
  std::array<char, 512> error{};
};

// MPI begins when all processes call it, and waits for them without end: so a thread calls it, and is left
// behind when the time is over.
const EspalierMpi& begin(decltype(&espalier_mpi_open) open) {
  static const std::shared_future<Begun> begun = [open] {
    std::packaged_task<Begun()> task([open] {
      Begun result;
      result.mpi = open(result.error.data(), result.error.size());
      return result;
    });
    std::shared_future<Begun> future = task.get_future().share();
    std::thread(std::move(task)).detach();
    return future;
  }();
  const double seconds = std::min(Communicator::default_timeout(), 1e9);
  if (begun.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    throw CommunicatorError(
        fmt::format("rank {}: MPI did not begin within {:g} s: not all {} processes have called world(), or "
                    "one has died",
                    rank(), seconds, size()));
  const Begun& result = begun.get();
  if (!result.mpi) throw CommunicatorError(fmt::format("MPI did not begin: {}", result.error.data()));
  return *result.mpi;
}

const EspalierMpi& load() {
  std::string tried;
  for (const std::string& place : places()) {
    // Global, since MPI's own plug-ins look for its names.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    const auto open = reinterpret_cast<decltype(&espalier_mpi_open)>(dlsym(library, "espalier_mpi_open"));
    if (!open) throw UnsupportedError(fmt::format("{} is no library of Espalier's for MPI", place));
    const EspalierMpi& mpi = begin(open);
    if (mpi.version != espalier_mpi_version)
      throw UnsupportedError(fmt::format("{} belongs to another version of Espalier", place));
    return mpi;
  }
  throw UnsupportedError(
      fmt::format("rank {} of {} needs Espalier's library for MPI, which is built where MPI is found "
                  "(Debian: libopenmpi-dev), and named by ESPALIER_MPI_LIBRARY if it is elsewhere:{}",
                  rank(), size(), tried));
}

/// Whether the program is linked with MPI itself, and so has ideas of its own about its processes.
bool uses_mpi_itself() {
  const auto is_mpi = [](dl_phdr_info* library, size_t, void*) {
    return static_cast<int>(std::strstr(library->dlpi_name, "libmpi") != nullptr);
  };
  return dl_iterate_phdr(is_mpi, nullptr) != 0;
}

/// All processes of a job run one program, and the first speaks for them: what the others write to standard
/// output is dropped, from the start of the program on. What they write to standard error is not.
struct OneVoice {
  OneVoice() {
    const char* all = std::getenv("ESPALIER_PRINT");
    if (rank() == 0 || (all && std::string_view(all) == "all") || uses_mpi_itself()) return;
    if (!std::freopen("/dev/null", "w", stdout)) std::perror("espalier: standard output");
  }
} one_voice;

}  // namespace

int rank() { return from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0); }
int size() { return from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1); }

std::shared_ptr<Communicator> world(std::source_location where) {
  return located(where, [] {
    static const std::shared_ptr<Communicator> all =
        size() > 1 ? make_mpi_communicator(load()) : make_thread_group(1).front();
    return all;
  });
}

}  // namespace espalier::distributed
