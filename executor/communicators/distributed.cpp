#include "espalier/executor/communicators/distributed.h"

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

#include "espalier/core/cpu/cores.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/groups.h"
#include "espalier/executor/communicators/mpi/communicator_mpi.h"
#include "espalier/executor/communicators/mpi/transport.h"

namespace espalier::distributed {
namespace {

// From the environment that mpirun sets: Open MPI's variable, or that of MPICH and its derivatives.
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

// Possible paths of the library for MPI.
std::vector<std::string> library_paths() {
  if (const char* named = std::getenv("ESPALIER_MPI_LIBRARY")) return {named};
  std::vector<std::string> paths;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&rank), &self) && self.dli_fname)
    paths.push_back(
        (std::filesystem::absolute(self.dli_fname).parent_path() / "libespalier_mpi.so").string());
  for (const char* path : {ESPALIER_MPI_BUILT, ESPALIER_MPI_INSTALLED, "libespalier_mpi.so"})
    paths.push_back(path);
  return paths;
}

struct Opened {
  const EspalierMpi* mpi = nullptr;
  std::array<char, 512> error{};
};

// MPI_Init waits for all processes without a limit, so a thread calls it, which stays behind after a timeout.
const EspalierMpi& open_mpi(decltype(&espalier_mpi_open) open) {
  static const std::shared_future<Opened> opened = [open] {
    std::packaged_task<Opened()> task([open] {
      Opened result;
      result.mpi = open(result.error.data(), result.error.size());
      return result;
    });
    std::shared_future<Opened> future = task.get_future().share();
    std::thread(std::move(task)).detach();
    return future;
  }();
  const double seconds = std::min(Communicator::default_timeout(), 1e9);
  if (opened.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    throw CommunicatorError(
        fmt::format("rank {}: MPI did not begin within {:g} s: not all {} processes have called world(), or "
                    "one has died",
                    rank(), seconds, size()));
  const Opened& result = opened.get();
  if (!result.mpi) throw CommunicatorError(fmt::format("MPI did not begin: {}", result.error.data()));
  return *result.mpi;
}

const EspalierMpi& load() {
  std::string tried;
  for (const std::string& path : library_paths()) {
    // Global, since MPI's plug-ins use its symbols.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    const auto open = reinterpret_cast<decltype(&espalier_mpi_open)>(dlsym(library, "espalier_mpi_open"));
    if (!open) throw UnsupportedError(fmt::format("{} is no library of Espalier's for MPI", path));
    const EspalierMpi& mpi = open_mpi(open);
    if (mpi.version != espalier_mpi_version)
      throw UnsupportedError(fmt::format("{} belongs to another version of Espalier", path));
    return mpi;
  }
  throw UnsupportedError(
      fmt::format("rank {} of {} needs Espalier's library for MPI, which is built where MPI is found "
                  "(Debian: libopenmpi-dev), and named by ESPALIER_MPI_LIBRARY if it is elsewhere:{}",
                  rank(), size(), tried));
}

/// Whether the program is linked with MPI itself, and so may handle the output of its processes itself.
bool uses_mpi_itself() {
  const auto is_mpi = [](dl_phdr_info* library, size_t, void*) {
    return static_cast<int>(std::strstr(library->dlpi_name, "libmpi") != nullptr);
  };
  return dl_iterate_phdr(is_mpi, nullptr) != 0;
}

/// In a job only the first process writes to standard output; that of the others is discarded from the start
/// of the program on. Standard error is not.
struct OutputOfFirstProcess {
  OutputOfFirstProcess() {
    const char* all = std::getenv("ESPALIER_PRINT");
    if (rank() == 0 || (all && std::string_view(all) == "all") || uses_mpi_itself()) return;
    if (!std::freopen("/dev/null", "w", stdout)) std::perror("espalier: standard output");
  }
} output_of_first_process;

/// Processes of a job share the cores of their machine, unless OMP_NUM_THREADS says how many threads each
/// has. Threads that are more than the cores spin where others must compute.
struct CoresOfProcess {
  CoresOfProcess() {
    const int processes = from_launcher("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", 1);
    if (processes < 2 || std::getenv("OMP_NUM_THREADS")) return;
    const auto all = static_cast<int>(std::thread::hardware_concurrency());
    set_num_threads(std::clamp(all / processes, 1, core_count()));
  }
} cores_of_process;

}  // namespace

// A rank outside of its job is no launcher's: this process is alone.
int rank() {
  const int rank = from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0);
  return rank < from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1) ? rank : 0;
}
int size() {
  const int size = from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1);
  return from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0) < size ? size : 1;
}

std::shared_ptr<Communicator> world(std::source_location where) {
  return located(where, [] {
    static const std::shared_ptr<Communicator> all =
        size() > 1 ? make_mpi_communicator(load()) : make_thread_group(1).front();
    return all;
  });
}

int local_rank(std::source_location where) {
  if (size() == 1) return 0;
  (void)world(where);  // so that MPI is finalized at the end of the program
  return load().local_rank;
}

std::vector<std::shared_ptr<Communicator>> make_group(const std::vector<Device>& devices,
                                                      std::shared_ptr<Communicator> world,
                                                      std::source_location where) {
  return located(where, [&] { return espalier::make_group(devices, std::move(world)); });
}

}  // namespace espalier::distributed
