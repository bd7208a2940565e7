// bench_gpu_all_reduce [rounds]: all-reduce of 256 MB per rank. On one GPU, relative to a copy within its
// memory: both read and write every element of every rank. On several GPUs, by the device group and by NCCL:
// the bytes of one rank over the time, and the time for a hundred floats.
#include <espalier/espalier.h>
#include <espalier/executor/communicators/cuda/communicator_devices.h>
#include <espalier/executor/communicators/nccl/communicator_nccl.h>

#include <functional>
#include <thread>

#include "../timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t large = 64 << 20, small = 100;  // floats
constexpr int large_turns = 10, small_turns = 1000;

using Group = std::vector<std::shared_ptr<esp::Communicator>>;

// The median time, in seconds, of an all-reduce in a sequence of many, concurrently on all ranks.
double seconds_of(const Group& group, const std::vector<esp::Device>& devices, int64_t elements, int turns,
                  int rounds) {
  double median = 0;
  std::vector<std::exception_ptr> errors(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      esp::Communicator& self = *group[rank];
      try {
        esp::Tensor values = esp::ones({elements}).to(devices[rank]);
        const double seconds = bench::median_seconds(rounds, [&] {
          esp::synchronize(devices[rank]);
          self.barrier();
          for (int turn = 0; turn < turns; ++turn) self.all_reduce(values, esp::Reduction::mean);
          esp::synchronize(devices[rank]);
          self.barrier();
        });
        if (rank == 0) median = seconds / turns;
      } catch (...) {
        errors[rank] = std::current_exception();
        self.abort(errors[rank]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return median;
}

void on_one(int ranks, int rounds) {
  const std::vector<esp::Device> devices(static_cast<size_t>(ranks), esp::gpu());
  const std::string name = "all_reduce_one_gpu_" + std::to_string(ranks);
  const Group group = esp::make_device_group(devices);
  const double bytes = 2.0 * ranks * large * sizeof(float);
  bench::report(name + "_gb_per_s", bytes / seconds_of(group, devices, large, large_turns, rounds) * 1e-9);
  bench::report(name + "_small_us", seconds_of(group, devices, small, small_turns, rounds) * 1e6);
}

void on_several(const std::vector<esp::Device>& devices, const std::string& kind, int rounds,
                const std::function<Group()>& make) {
  const std::string name = "all_reduce_" + kind + "_" + std::to_string(devices.size());
  try {
    const Group group = make();
    const double bytes = large * sizeof(float);
    bench::report(name + "_gb_per_s", bytes / seconds_of(group, devices, large, large_turns, rounds) * 1e-9);
    bench::report(name + "_small_us", seconds_of(group, devices, small, small_turns, rounds) * 1e6);
  } catch (const esp::UnsupportedError& error) {
    std::printf("# %s: %s\n", name.c_str(), error.what());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const int rounds = bench::rounds(argc, argv);
  esp::synchronize(esp::gpu());  // throws where there is none
  for (const int ranks : {1, 2, 4}) on_one(ranks, rounds);
  const std::vector<esp::Device> all = esp::all_gpus();
  for (size_t n = 1; n <= all.size(); n = n < all.size() ? std::min(2 * n, all.size()) : n + 1) {
    const std::vector<esp::Device> devices(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
    if (n > 1) on_several(devices, "peers", rounds, [&] { return esp::make_device_group(devices); });
    on_several(devices, "nccl", rounds, [&] { return esp::make_nccl_group(devices); });
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_gpu_all_reduce: %s\n", error.what());
  return 1;
}
