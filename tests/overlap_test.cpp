// Batches are read while steps run.
#include <boost/test/unit_test.hpp>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "espalier/data/distributor.h"
#include "espalier/data/prefetch.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/optim/sgd.h"

namespace esp = espalier;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t steps = 40;

/// A dataset whose reads block for a fixed time.
struct Slow : esp::data::Dataset {
  explicit Slow(std::chrono::microseconds delay) : delay_(delay) {}
  int64_t rows() const override { return steps; }
  std::vector<esp::Spec> specs() const override {
    return {{esp::float32, {steps, 3}}, {esp::float32, {steps, 1}}};
  }
  void read(std::span<const int64_t>, std::span<esp::Tensor> outputs) const override {
    std::this_thread::sleep_for(delay_);
    for (esp::Tensor& t : outputs)
      for (float& v : t.span<float>()) v = 0.5f;
    ++reads;
  }
  mutable std::atomic<int64_t> reads{0};

 private:
  std::chrono::microseconds delay_;
};

esp::Executor executor_over(const std::shared_ptr<const esp::data::Dataset>& dataset, bool validation) {
  const esp::data::Distributor feed(dataset, {.batch_size = 1});
  const auto [x, y] = feed.get_output_graphs<2>();
  esp::ExecutorOptions options{.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.01)};
  if (validation) options.validation = feed;
  return esp::nn::MeanSquared()(esp::nn::Dense(1)(x), y).get_executor(options);
}

bool one_core() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) != 0 || CPU_COUNT(&cores) < 2;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(overlap)

BOOST_AUTO_TEST_CASE(the_next_batch_is_read_during_a_step) {
  if (one_core()) return;
  const auto dataset = std::make_shared<Slow>(std::chrono::microseconds(200));
  const esp::Executor executor = executor_over(dataset, false);
  int64_t overlapped = 0;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.step < 2 || info.step + 1 == info.steps) return;  // the first two steps time the reads
    // The step lasts until the next batch has been read, which never happens if reading does not overlap.
    const auto give_up = Clock::now() + std::chrono::seconds(20);
    while (dataset->reads < info.step + 2 && Clock::now() < give_up) std::this_thread::yield();
    overlapped += dataset->reads >= info.step + 2;
  });
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(overlapped == steps - 3);
}

BOOST_AUTO_TEST_CASE(a_consumer_slower_than_reading_does_not_wait) {
  if (one_core()) return;
  const auto dataset = std::make_shared<Slow>(std::chrono::microseconds(200));
  esp::data::Prefetcher batches(esp::data::make_feed(dataset, {.batch_size = 1}));
  batches.start(0);
  while (!batches.at_end()) {
    batches.next();
    const auto give_up = Clock::now() + std::chrono::seconds(20);
    const int64_t next = std::min(batches.step() + 2, steps);
    while (batches.step() >= 2 && dataset->reads < next && Clock::now() < give_up) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the batch is handed over
  }
  BOOST_TEST(batches.waits() >= 2);  // the first two reads were timed
  BOOST_TEST(batches.waits() < steps / 2);
  // Batches that are read faster than a thread wakes are read by the consumer.
  const esp::Tensor x = esp::ones({steps, 3});
  esp::data::Prefetcher quick(
      esp::data::make_feed(std::make_shared<esp::data::TensorDataset>(std::vector{x}), {.batch_size = 1}));
  quick.start(0);
  while (!quick.at_end()) quick.next();
  BOOST_TEST(quick.waits() <= steps);
  BOOST_TEST(quick.waits() >= 2);
}

BOOST_AUTO_TEST_CASE(an_epoch_takes_as_long_as_the_slower_of_both) {
  // Times are not asserted; --log_level=message shows the ratios.
  for (const auto& [reading, computing] : {std::pair{1000, 1000}, {2000, 500}, {500, 2000}}) {
    const esp::Executor executor =
        executor_over(std::make_shared<Slow>(std::chrono::microseconds(reading)), true);
    executor.on(esp::Event::step_finish, [computing = computing](const esp::StepInfo&) {
      std::this_thread::sleep_for(std::chrono::microseconds(computing));
    });
    const esp::History history = executor.execute({.epochs = 3, .progress = false});
    const double best = 1e-6 * steps * std::max(reading, computing);
    BOOST_TEST_MESSAGE("reading " << reading << " µs, computing " << computing
                                  << " µs: " << history.epochs[2].seconds / best << " of the longer, "
                                  << history.epochs[2].seconds / (1e-6 * steps * (reading + computing))
                                  << " of the sum");
    BOOST_TEST(history.epochs[2].samples == steps);
  }
}

BOOST_AUTO_TEST_SUITE_END()
