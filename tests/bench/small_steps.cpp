// bench_small_steps [rounds]: steps so small that threads, replicas and processes have more to agree on than
// to compute: 64 samples of 64 numbers, a hidden layer of 128, Adam. In one process: one thread, two threads,
// two replicas, and threads beside a program that keeps a core busy; the same threads for hidden layers of
// 512 to 4,096, whose products two of them share. Under mpirun: a job of all its processes,
//   mpirun -np 2 bench_small_steps
#include <espalier/espalier.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t kSamples = 1472, kBatch = 64;

/// A training of its own network.
class Training {
 public:
  explicit Training(std::vector<esp::Device> devices = {}, bool distributed = false, int64_t hidden = 128)
      : feed_({esp::randn({kSamples, 64}), esp::zeros({kSamples}, esp::int64)}, {.batch_size = kBatch}) {
    esp::seed(1);
    const auto [x, y] = feed_.get_output_graphs<2>();
    const esp::nn::Sequential network{esp::nn::Dense(hidden), esp::nn::Relu(), esp::nn::Dropout(0.2),
                                      esp::nn::Dense(10)};
    executor_.push_back(esp::nn::SoftmaxCrossEntropy()(network(x), y)
                            .get_executor({.mode = esp::Mode::training,
                                           .optimizer = esp::optim::Adam({.lr = 1e-3}),
                                           .devices = std::move(devices),
                                           .replicas = {.distributed = distributed}}));
  }
  /// Seconds of one step.
  double step_seconds(int epochs) const {
    const double all =
        bench::seconds([&] { (void)executor_[0].execute({.epochs = epochs, .progress = false}); });
    return all / (epochs * static_cast<double>(kSamples / kBatch));
  }

 private:
  esp::data::Distributor feed_;
  std::vector<esp::Executor> executor_;
};

/// Another program, as far as the scheduler can tell.
class BusyCore {
 public:
  BusyCore()
      : thread_([this] {
          while (!ends_) ++turns_;
        }) {}
  ~BusyCore() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_ = false;
  std::atomic<uint64_t> turns_ = 0;
  std::thread thread_;
};

void report(const std::string& name, const std::vector<double>& seconds) {
  bench::report("small_steps_" + name + "_us", bench::median(seconds) * 1e6);
}

/// A hidden layer so wide that two threads share its products: with one and two threads, alone and beside a
/// program that keeps a core busy.
void measure_wide(int64_t hidden, int rounds) {
  const Training training({}, false, hidden);
  const int epochs = static_cast<int>(8192 / hidden);
  std::vector<double> one, two, one_beside, two_beside;
  const auto measure = [&](int threads, std::vector<double>& times) {
    esp::set_num_threads(threads);
    (void)training.step_seconds(1);
    times.push_back(training.step_seconds(epochs));
  };
  for (int round = 0; round < rounds; ++round) {
    measure(1, one);
    measure(2, two);
    {
      const BusyCore busy;
      measure(2, two_beside);
      measure(1, one_beside);
    }
    // Threads spin briefly for a second more; cores that sleep meanwhile are slow afterwards.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
    esp::set_num_threads(2);
    while (std::chrono::steady_clock::now() < end) (void)training.step_seconds(1);
  }
  const std::string name = "wide_" + std::to_string(hidden);
  report(name + "_one_thread", one);
  report(name + "_two_threads", two);
  report(name + "_one_thread_beside_a_busy_core", one_beside);
  report(name + "_two_threads_beside_a_busy_core", two_beside);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::rounds(argc, argv);
  constexpr int kEpochs = 40;
  if (esp::distributed::size() > 1) {
    const Training job({}, true);
    std::vector<double> times;
    (void)job.step_seconds(kEpochs);
    for (int round = 0; round < rounds; ++round) times.push_back(job.step_seconds(kEpochs));
    if (esp::distributed::rank() == 0) report("job", times);
    return 0;
  }
  const Training training, replicas({esp::cpu(0), esp::cpu(1)});
  std::vector<double> one, two, both, one_beside, two_beside;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms caches
    esp::set_num_threads(1);
    one.push_back(training.step_seconds(kEpochs));
    esp::set_num_threads(2);
    two.push_back(training.step_seconds(kEpochs));
    both.push_back(replicas.step_seconds(kEpochs));
    const BusyCore busy;
    two_beside.push_back(training.step_seconds(kEpochs));
    esp::set_num_threads(1);
    one_beside.push_back(training.step_seconds(kEpochs));
  }
  for (auto* times : {&one, &two, &both, &one_beside, &two_beside}) times->erase(times->begin());
  report("one_thread", one);
  report("two_threads", two);
  report("two_replicas", both);
  report("one_thread_beside_a_busy_core", one_beside);
  report("two_threads_beside_a_busy_core", two_beside);
  for (const int64_t hidden : {512, 1024, 2048, 4096}) measure_wide(hidden, rounds);
}
