// bench_replicas [rounds]: the same global batch of the MLP and of the GPT block on two cores, by one replica
// with two threads and by two replicas with one thread each. The contestants alternate in one process, so
// that other load affects them equally. For a breakdown of the time: one replica with its gradients in a
// bucket that is not sent, and two programs with half the batch each that exchange nothing.
#include <espalier/espalier.h>

#include <filesystem>
#include <thread>

#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

namespace {

const std::vector<esp::Device> kReplicas{esp::cpu(0), esp::cpu(1)};

/// Microseconds of all events with this name in a trace, which has one line per event.
double traced(const std::filesystem::path& trace, const std::string& name) {
  std::ifstream file(trace);
  double sum = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"name\":\"" + name + "\"") == std::string::npos) continue;
    const std::string key = "\"dur\":";
    if (const size_t at = line.find(key); at != std::string::npos)
      sum += std::stod(line.substr(at + key.size()));
  }
  return sum;
}

/// Two independent programs, each in a thread with half of the work.
class Apart {
 public:
  template <class Make>
  explicit Apart(const Make& make) : programs_{make(), make()} {}

  void run() const {
    std::vector<std::thread> threads;
    for (const workloads::Frozen& program : programs_)
      threads.emplace_back([&program] {
        esp::set_num_threads(1);
        program.run();
      });
    for (std::thread& thread : threads) thread.join();
  }
  int64_t steps() const { return programs_[0].steps; }

 private:
  workloads::Frozen programs_[2];
};

template <class Make, class MakeHalf>
void compare(const std::string& name, int rounds, const Make& make, const MakeHalf& make_half) {
  const workloads::Frozen one = make(workloads::Target{}),
                          two = make(workloads::Target{.devices = kReplicas});
  const workloads::Frozen side_by_side = make(workloads::Target{.gather_gradients = true});
  const Apart apart(make_half);
  const auto run_two = [&] { two.run(); };
  one.run(), side_by_side.run(), apart.run(), run_two();  // warm caches, allocators and predictors

  std::vector<double> threads, bucket, halves, replicas, ratio, over_halves;
  for (; rounds > 0; --rounds) {
    threads.push_back(bench::seconds(one.run) / static_cast<double>(one.steps));
    replicas.push_back(bench::seconds(run_two) / static_cast<double>(two.steps));
    bucket.push_back(bench::seconds(side_by_side.run) / static_cast<double>(one.steps));
    halves.push_back(bench::seconds([&] { apart.run(); }) / static_cast<double>(apart.steps()));
    ratio.push_back(replicas.back() / threads.back());
    over_halves.push_back(replicas.back() / halves.back());
  }

  // The fractions of a step in which one replica waits and reduces, and in which it copies into its messages.
  const auto trace = std::filesystem::temp_directory_path() / ("espalier_replicas_" + name + ".json");
  two.executor.profile(trace, {.steps = two.steps});
  two.run();
  const double step = traced(trace, "step"), wait = traced(trace, "wait_for_gradients"),
               copies = traced(trace, "gradient_bucket");
  std::filesystem::remove(trace);

  const auto us = [](const std::vector<double>& values) { return bench::median(values) * 1e6; };
  bench::report(name + "_threads_us", us(threads));
  bench::report(name + "_replicas_us", us(replicas));
  bench::report(name + "_side_by_side_us", us(bucket));
  bench::report(name + "_halves_apart_us", us(halves));
  bench::report(name + "_replicas_over_threads", bench::median(ratio));
  bench::report(name + "_replicas_over_halves", bench::median(over_halves));
  bench::report(name + "_exposed_share", wait / step);
  bench::report(name + "_copied_share", copies / step);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::rounds(argc, argv);
  esp::set_num_threads(2);
  compare(
      "mlp", rounds, [](const workloads::Target& target) { return workloads::mlp(target); },
      [] { return workloads::mlp({}, task::kRows / 2, task::kBatch / 2); });
  compare(
      "gpt", rounds, [](const workloads::Target& target) { return workloads::gpt(target); },
      [] {
        return workloads::gpt(workloads::Target{},
                              {.rows = gpt_task::kRows / 2, .batch = gpt_task::kBatch / 2});
      });
}
