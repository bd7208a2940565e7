// bench_all_reduce [rounds]: all-reduce of 64 MB on each thread, plain and weighted, relative to concurrent
// loops of the same threads in their own memory: an addition in place and a triad, a = b + c · d. Also the
// time of a small all-reduce, which consists of waiting. THREADS sets the number of ranks, by default 2.
#include <espalier/executor/communicators/distributed.h>

#include <thread>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t large = 16 << 20, small = 100;  // floats
constexpr int small_turns = 2000;

// The median time of `work`, which all ranks run concurrently.
template <class Work>
double together(int ranks, int rounds, const Work& work) {
  auto group = esp::distributed::make_group(std::vector<esp::Device>(static_cast<size_t>(ranks), esp::cpu()));
  double median = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      esp::set_num_threads(1);
      esp::Communicator& self = *group[static_cast<size_t>(rank)];
      auto step = work(self);
      const double seconds = bench::median_seconds(rounds, [&] {
        self.barrier();
        step();
        self.barrier();
      });
      if (rank == 0) median = seconds;
    });
  for (std::thread& thread : threads) thread.join();
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  const char* wanted = std::getenv("THREADS");
  const int ranks = wanted ? std::max(1, std::atoi(wanted)) : 2, rounds = 3 * bench::rounds(argc, argv);

  const double reduce = together(ranks, rounds, [](esp::Communicator& self) {
    return [&self, values = esp::ones({large})]() mutable { self.all_reduce(values, esp::Reduction::mean); };
  });
  // An all_reduce reads and writes every element of every rank, and so does adding to it in place.
  const double stream = together(ranks, rounds, [](esp::Communicator&) {
    return [values = esp::ones({large})]() mutable {
      for (float& value : values.span<float>()) value += 1;
    };
  });
  const double weighted = together(ranks, rounds, [ranks](esp::Communicator& self) {
    return [&self, values = esp::ones({large}),
            weights = std::vector<double>(static_cast<size_t>(ranks), 0.5)]() mutable {
      self.all_reduce_weighted(values, weights);
    };
  });
  constexpr int64_t third = large / 3;  // the same memory in total
  const double triad = together(ranks, rounds, [](esp::Communicator&) {
    return [a = esp::ones({third}), b = esp::ones({third}), c = esp::ones({third})]() mutable {
      float* const to = a.span<float>().data();
      const float *x = b.span<float>().data(), *y = c.span<float>().data();
      for (int64_t i = 0; i < third; ++i) to[i] = x[i] + 0.5f * y[i];
    };
  });
  const double wait = together(ranks, rounds, [](esp::Communicator& self) {
    return [&self, values = esp::ones({small})]() mutable {
      for (int turn = 0; turn < small_turns; ++turn) self.all_reduce(values, esp::Reduction::mean);
    };
  });
  const double bytes = 2.0 * ranks * large * sizeof(float);
  bench::report("all_reduce_gb_per_s", bytes / reduce * 1e-9);
  bench::report("all_reduce_stream_gb_per_s", bytes / stream * 1e-9);
  bench::report("all_reduce_share_of_stream", stream / reduce);
  const double triad_rate = 3.0 * ranks * third * sizeof(float) / triad;
  bench::report("all_reduce_weighted_gb_per_s", bytes / weighted * 1e-9);
  bench::report("all_reduce_triad_gb_per_s", triad_rate * 1e-9);
  bench::report("all_reduce_share_of_triad", bytes / reduce / triad_rate);
  bench::report("all_reduce_weighted_share_of_triad", bytes / weighted / triad_rate);
  bench::report("all_reduce_small_us", wait / small_turns * 1e6);
  return 0;
}
