// bench_small_steps [rounds]: steps so small that threads, replicas and processes have more to agree on than
// to compute: 64 samples of 64 numbers, a hidden layer of 128, Adam. In one process: one thread, two threads,
// two replicas, and threads beside a program that keeps a core busy; the same threads for a hidden layer of
// 2,048, whose products two of them share. Under mpirun: a job of all its processes,
//   mpirun -np 2 bench_small_steps
#include <espalier/espalier.h>

#include <atomic>
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

void report(const char* name, const std::vector<double>& seconds) {
  bench::report(std::string("small_steps_") + name + "_us", bench::median(seconds) * 1e6);
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
  const Training large({}, false, 2048);  // whose products two threads share
  const Training training, replicas({esp::cpu(0), esp::cpu(1)});
  std::vector<double> one, two, both, one_beside, two_beside;
  std::vector<double> large_one, large_two, large_one_beside, large_two_beside;
  constexpr int kFewEpochs = 2;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms caches
    esp::set_num_threads(1);
    one.push_back(training.step_seconds(kEpochs));
    large_one.push_back(large.step_seconds(kFewEpochs));
    esp::set_num_threads(2);
    large_two.push_back(large.step_seconds(kFewEpochs));
    two.push_back(training.step_seconds(kEpochs));
    both.push_back(replicas.step_seconds(kEpochs));
    const BusyCore busy;
    two_beside.push_back(training.step_seconds(kEpochs));
    large_two_beside.push_back(large.step_seconds(kFewEpochs));
    esp::set_num_threads(1);
    one_beside.push_back(training.step_seconds(kEpochs));
    large_one_beside.push_back(large.step_seconds(kFewEpochs));
  }
  for (auto* times : {&one, &two, &both, &one_beside, &two_beside, &large_one, &large_two, &large_one_beside,
                      &large_two_beside})
    times->erase(times->begin());
  report("one_thread", one);
  report("two_threads", two);
  report("two_replicas", both);
  report("one_thread_beside_a_busy_core", one_beside);
  report("two_threads_beside_a_busy_core", two_beside);
  report("large_one_thread", large_one);
  report("large_two_threads", large_two);
  report("large_one_thread_beside_a_busy_core", large_one_beside);
  report("large_two_threads_beside_a_busy_core", large_two_beside);
}
