// Latency of one row through a network of three layers, 128 wide, when several threads serve requests:
//   bench_serving [requests of each thread]
// They share one executor, have one each, or share one while another thread trains the same parameters.
#include <espalier/espalier.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
namespace esp = espalier;

namespace {

constexpr int64_t kWidth = 128;

esp::Variable network() {
  esp::Variable h = esp::placeholder("x", {1, kWidth});
  static const std::vector<esp::nn::Dense> layers{esp::nn::Dense(kWidth), esp::nn::Dense(kWidth),
                                                  esp::nn::Dense(kWidth)};
  for (const esp::nn::Dense& layer : layers) h = esp::relu(layer(h));
  return h;
}

/// The latencies of all requests in µs, sorted.
std::vector<double> serve(const std::vector<esp::Executor>& executors, int threads, int requests) {
  std::vector<std::vector<double>> own(static_cast<size_t>(threads));
  std::vector<std::thread> all;
  for (size_t t = 0; t < own.size(); ++t)
    all.emplace_back([&, t] {
      esp::set_num_threads(1);
      const esp::Executor& executor = executors[t % executors.size()];
      const esp::Tensor row = esp::full({1, kWidth}, 0.01 * static_cast<double>(t));
      for (int i = -requests / 10; i < requests; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        executor.run({{"x", row}});
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
        if (i >= 0) own[t].push_back(time.count());
      }
    });
  for (std::thread& thread : all) thread.join();
  std::vector<double> times;
  for (const auto& part : own) times.insert(times.end(), part.begin(), part.end());
  std::ranges::sort(times);
  return times;
}

void print(const char* how, int threads, const std::vector<double>& times) {
  std::printf("%-32s %d threads: p50 %7.2f us, p99 %8.2f us\n", how, threads, times[times.size() / 2],
              times[times.size() * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 20000;
  const auto inference = [] { return network().get_executor({.mode = esp::Mode::inference}); };
  const esp::Executor shared = inference();
  for (const int threads : {1, 8}) {
    print("one executor", threads, serve({shared}, threads, requests));
    std::vector<esp::Executor> each;
    for (int t = 0; t < threads; ++t) each.push_back(inference());
    print("an executor each", threads, serve(each, threads, requests));
    std::atomic<bool> done{false};
    std::thread trainer([&] {
      esp::set_num_threads(1);
      const esp::Executor training =
          esp::sum(esp::square(network())).get_executor({.optimizer = esp::optim::Sgd(1e-6)});
      while (!done) training.run({{"x", esp::ones({1, kWidth})}});
    });
    print("one executor beside training", threads, serve({shared}, threads, requests));
    done = true;
    trainer.join();
  }
}
