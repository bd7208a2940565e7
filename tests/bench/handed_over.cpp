// bench_handed_over: two million tensors of 800 bytes that one thread makes and another drops, at most 2,000
// of them at a time: the time of one, and the memory that the process has then.
#include <espalier/espalier.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "timing.h"
namespace esp = espalier;

int main() {
  constexpr int kTensors = 2'000'000, kAlive = 2000, kBatch = 100;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::vector<esp::Tensor>> queue;
  const double before = bench::resident_megabytes();
  const double time = bench::seconds([&] {
    std::thread drops([&] {
      for (int i = 0; i < kTensors / kBatch; ++i) {
        std::vector<esp::Tensor> batch;
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !queue.empty(); });
        batch.swap(queue.front());
        queue.pop_front();
        lock.unlock();
        changed.notify_one();
      }
    });
    for (int i = 0; i < kTensors / kBatch; ++i) {
      std::vector<esp::Tensor> batch;
      for (int k = 0; k < kBatch; ++k) batch.push_back(esp::zeros({200}));
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return queue.size() < kAlive / kBatch - 2; });
      queue.push_back(std::move(batch));
      lock.unlock();
      changed.notify_one();
    }
    drops.join();
  });
  bench::report("handed_over_tensor_ns", time / kTensors * 1e9);
  bench::report("handed_over_memory_MB", bench::resident_megabytes() - before);
}
