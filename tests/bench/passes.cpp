// The gain of each pass: every workload is compiled with all passes, and without each of them, and the plans
// are timed in turns. Prints a table in Markdown.
//   bench_passes [workload...] [turns]
#include <espalier/espalier.h>

#include <algorithm>

#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

namespace {

struct Workload {
  const char* name;
  workloads::Frozen (*freeze)(const workloads::Without&);
  int runs;  // timed as one
};

// Smaller than in bench_pointwise, so that all variants fit into memory, but larger than any cache.
workloads::Frozen pointwise(const workloads::Without& without) {
  return workloads::pointwise_backward(without, int64_t{1} << 22);
}

constexpr Workload kWorkloads[] = {{"mlp", workloads::mlp, 1},
                                   {"inference", workloads::inference, 1000},
                                   {"pointwise", pointwise, 2},
                                   {"gpt", workloads::gpt, 1},
                                   {"small", workloads::small, 5}};

// The time and arena with all passes, and for each pass the median effect of leaving it out.
struct Gains {
  double microseconds = 0, kilobytes = 0;
  std::vector<double> time = {}, arena = {};
};

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  const workloads::Frozen frozen = workloads::inference();
  for (const esp::PassReport& pass : frozen.executor.plan().passes()) names.push_back(pass.name);
  names.emplace_back("in_place");
  return names;
}

Gains measure(const Workload& workload, const std::vector<std::string>& names, int turns) {
  std::vector<workloads::Frozen> variants{workload.freeze({})};
  for (const std::string& name : names) variants.push_back(workload.freeze({name}));
  const auto time = [&](const workloads::Frozen& variant) {
    return bench::seconds([&] {
      for (int run = 0; run < workload.runs; ++run) variant.run();
    });
  };
  for (const workloads::Frozen& variant : variants) variant.run();
  std::vector<double> all;
  std::vector<std::vector<double>> ratios(names.size());
  for (int turn = 0; turn < turns; ++turn) {
    all.push_back(time(variants[0]));
    for (size_t i = 0; i < names.size(); ++i) {
      // Each variant is compared with a run with all passes, in turns before and after it.
      double with = 0, without = 0;
      if (turn % 2) with = time(variants[0]);
      without = time(variants[i + 1]);
      if (turn % 2 == 0) with = time(variants[0]);
      ratios[i].push_back(without / with);
    }
  }
  const auto arena = [](const workloads::Frozen& variant) {
    return static_cast<double>(variant.executor.plan().arena_bytes());
  };
  Gains gains{
      .microseconds = bench::median(all) * 1e6 / static_cast<double>(workload.runs * variants[0].steps),
      .kilobytes = arena(variants[0]) / 1024};
  for (size_t i = 0; i < names.size(); ++i) {
    gains.time.push_back(bench::median(ratios[i]));
    gains.arena.push_back(arena(variants[0]) > 0 ? arena(variants[i + 1]) / arena(variants[0]) : 1);
  }
  return gains;
}

void print(const std::vector<const char*>& names, const std::vector<Gains>& gains,
           const std::vector<std::string>& passes) {
  std::printf("| left out |");
  for (const char* name : names) std::printf(" %s, time | %s, arena |", name, name);
  std::printf("\n| --- |");
  for (size_t i = 0; i < names.size(); ++i) std::printf(" --- | --- |");
  std::printf("\n| nothing |");
  for (const Gains& gain : gains) std::printf(" %.0f µs | %.0f kB |", gain.microseconds, gain.kilobytes);
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    std::printf("\n| %s |", passes[pass].c_str());
    for (const Gains& gain : gains) std::printf(" × %.2f | × %.2f |", gain.time[pass], gain.arena[pass]);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  const std::vector<std::string> wanted(argv + 1, argv + argc), passes = pass_names();
  const bool all = argc < 2 || (argc == 2 && std::atoi(argv[1]) > 0);
  std::vector<const char*> names;
  std::vector<Gains> gains;
  for (const Workload& workload : kWorkloads) {
    if (!all && std::find(wanted.begin(), wanted.end(), workload.name) == wanted.end()) continue;
    std::fprintf(stderr, "%s\n", workload.name);
    names.push_back(workload.name);
    gains.push_back(measure(workload, passes, bench::rounds(argc, argv)));
  }
  print(names, gains, passes);
}
