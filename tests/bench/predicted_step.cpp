// The predicted time of a step of the MLP and of the GPT block on this processor, relative to the measured
// time. The processor is measured first, by the library's kernels: a large product, the addition of arrays,
// and operations on single elements. The contestants alternate, so that other load affects them equally. With
// two threads, also a step of two replicas with one thread each: each has half of the measured rates, and the
// network is measured by all-reduces of two threads, of the plan's bytes and of a few bytes.
#include <espalier/espalier.h>

#include <thread>

#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

namespace {

/// Seconds of a step of a tree without a feed.
double step_seconds(const esp::Executor& executor) {
  return bench::median_seconds(5, [&] {
    try {
      executor.step();
    } catch (const esp::EndOfData&) {  // an epoch has one step
      executor.step();
    }
  });
}

/// FLOP/s of a product of n x n matrices. The plan returns one element, so that no copy is timed.
double measure_flops(int64_t n) {
  const esp::Variable a = esp::parameter(esp::randn({n, n})), b = esp::parameter(esp::randn({n, n}));
  const esp::Variable element = esp::slice(esp::reshape(esp::matmul(a, b), {-1}), 0, 0, 1);
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / step_seconds(element.get_executor());
}

/// Bytes/s of an addition; `bytes` is the size of operands and result together.
double measure_bandwidth(int64_t bytes) {
  const esp::NoGrad guard;
  const int64_t elements = std::max<int64_t>(1, bytes / 12);
  const esp::Variable a(esp::randn({elements})), b(esp::randn({elements}));
  const double seconds = bench::median_seconds(15, [&] { (void)(a + b).value(); });
  return 12 * static_cast<double>(elements) / seconds;
}

/// Seconds of overhead per kernel.
double measure_launch() {
  constexpr int kernels = 200;
  const esp::Variable x = esp::parameter(esp::ones({1}));
  esp::Variable y = x;
  for (int i = 0; i < kernels; ++i) y = esp::tanh(y);
  return step_seconds(y.get_executor({.without = {"fuse_pointwise", "fold_constants"}})) / kernels;
}

/// Seconds of an all-reduce of `bytes` by two threads.
double measure_all_reduce(int64_t bytes) {
  const auto ranks = esp::distributed::make_group({esp::cpu(), esp::cpu()});
  constexpr int turns = 50;
  double seconds = 0;
  std::vector<std::thread> threads;
  for (const auto& self : ranks)
    threads.emplace_back([&seconds, self, bytes] {
      esp::set_num_threads(1);
      esp::Tensor values = esp::ones({std::max<int64_t>(1, bytes / 4)});
      const std::vector<double> weights{0.5, 0.5};
      for (int i = 0; i < 3; ++i) self->all_reduce_weighted(values, weights);
      const double taken = bench::seconds([&] {
        for (int i = 0; i < turns; ++i) self->all_reduce_weighted(values, weights);
      });
      self->barrier();
      if (self->rank() == 0) seconds = taken / turns;
    });
  for (std::thread& thread : threads) thread.join();
  return seconds;
}

/// Two threads as a network, for messages of `bytes`: a ring of two takes 2 (latency + bytes / 2 bandwidth).
esp::Network two_threads(int64_t bytes) {
  const double none = measure_all_reduce(4), all = std::max(measure_all_reduce(bytes), 1.01 * none);
  return {.name = "threads",
          .levels = {{.name = "threads",
                      .size = 2,
                      .bandwidth = static_cast<double>(bytes) / (all - none),
                      .latency = none / 2}}};
}

/// The bytes of gradients that replicas exchange.
int64_t exchanged_bytes(const esp::Plan& plan) {
  const std::string text = plan.str(), before = "gradients: %";
  const size_t at = text.find('+', text.find(before));
  return std::stoll(text.substr(at + 1));
}

struct Workload {
  std::string name;
  workloads::Frozen frozen;
  bool replicas = false;
  std::vector<double> measured, predicted, in_cache;
};

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  std::vector<Workload> all;
  all.push_back({"mlp", workloads::mlp(), false, {}, {}, {}});
  all.push_back({"gpt", workloads::gpt(), false, {}, {}, {}});
  if (bench::threads() == 2) {
    const std::vector<esp::Device> devices{esp::cpu(0), esp::cpu(1)};
    all.push_back({"mlp_replicas", workloads::mlp(workloads::Target{.devices = devices}), true, {}, {}, {}});
    all.push_back({"gpt_replicas", workloads::gpt(workloads::Target{.devices = devices}), true, {}, {}, {}});
  }
  for (Workload& workload : all) workload.frozen.run();  // warms caches, allocators and predictors

  constexpr int64_t beyond_caches = int64_t{1} << 29;
  std::vector<double> flops, bandwidth, launch;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    flops.push_back(measure_flops(1024));
    bandwidth.push_back(measure_bandwidth(beyond_caches));
    launch.push_back(measure_launch());
    for (Workload& workload : all) {
      const esp::Plan plan = workload.frozen.executor.plan();
      const double cached = measure_bandwidth(plan.arena_bytes());
      const auto steps = static_cast<double>(workload.frozen.steps);
      workload.measured.push_back(bench::seconds(workload.frozen.run) / steps);
      const double part = workload.replicas ? 0.5 : 1;
      const esp::Network network = workload.replicas ? two_threads(exchanged_bytes(plan)) : esp::Network();
      const auto predict = [&](double bytes_per_second) {
        return plan
            .predict({.hardware = esp::presets::measured_cpu(part * flops.back(), part * bytes_per_second,
                                                             launch.back()),
                      .network = network,
                      .overlap = 0})
            .step;
      };
      workload.predicted.push_back(predict(bandwidth.back()));
      workload.in_cache.push_back(predict(cached));
    }
  }

  bench::report("machine_gflops", bench::median(flops) * 1e-9);
  bench::report("machine_gb_per_s", bench::median(bandwidth) * 1e-9);
  bench::report("machine_launch_us", bench::median(launch) * 1e6);
  for (Workload& workload : all) {
    std::vector<double> ratio, in_cache;
    for (size_t i = 0; i < workload.measured.size(); ++i) {
      ratio.push_back(workload.predicted[i] / workload.measured[i]);
      in_cache.push_back(workload.in_cache[i] / workload.measured[i]);
    }
    bench::report(workload.name + "_measured_us", bench::median(workload.measured) * 1e6);
    bench::report(workload.name + "_predicted_us", bench::median(workload.predicted) * 1e6);
    bench::report(workload.name + "_predicted_over_measured", bench::median(ratio));
    // With the bandwidth measured on arrays of the size of the plan's arena.
    bench::report(workload.name + "_predicted_in_cache_us", bench::median(workload.in_cache) * 1e6);
    bench::report(workload.name + "_in_cache_over_measured", bench::median(in_cache));
  }
}
