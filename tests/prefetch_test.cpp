#include "espalier/data/prefetch.h"

#include <sched.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "espalier/core/error.h"

using namespace espalier;
using data::Prefetcher;

namespace {

/// Batches of two rows whose elements encode epoch and step; the last has one row. A slow feed is prefetched.
class TestFeed : public Feed {
 public:
  TestFeed(int64_t steps, int microseconds) : steps_(steps), delay_(microseconds) {}
  std::string name() const override { return "test"; }
  std::vector<Spec> specs() const override { return {{float32, {2, 3}}, {int64, {2}}}; }
  int64_t steps() const override { return steps_; }
  int64_t rows(int64_t step) const override { return step + 1 == steps_ ? 1 : 2; }
  void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const override {
    const auto end = std::chrono::steady_clock::now() + delay_;
    while (std::chrono::steady_clock::now() < end) {
    }
    {
      const std::lock_guard lock(mutex_);
      readers_.insert(std::this_thread::get_id());
      if (step == fail_at_) {
        if (--failures_ == 0) fail_at_ = -1;
        throw DataError("row is broken");
      }
    }
    for (float& v : outputs[0].span<float>()) v = static_cast<float>(epoch);
    for (int64_t& v : outputs[1].span<int64_t>()) v = step;
  }

  void fail(int64_t step, int times) {
    const std::lock_guard lock(mutex_);
    fail_at_ = step;
    failures_ = times;
  }
  std::set<std::thread::id> readers() const {
    const std::lock_guard lock(mutex_);
    return readers_;
  }

 private:
  int64_t steps_;
  std::chrono::microseconds delay_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> readers_;
  mutable int64_t fail_at_ = -1;
  mutable int failures_ = 0;
};

constexpr int fast = 0, slow = 100;

void check_batch(std::span<const Tensor> batch, int64_t epoch, int64_t step, int64_t rows) {
  BOOST_REQUIRE(batch.size() == 2u);
  BOOST_TEST(batch[0].shape() == Shape({rows, 3}));
  BOOST_TEST(batch[1].shape() == Shape({rows}));
  for (const float v : batch[0].span<float>()) BOOST_REQUIRE(v == static_cast<float>(epoch));
  for (const int64_t v : batch[1].span<int64_t>()) BOOST_REQUIRE(v == step);
}

void check_epoch(Prefetcher& batches, const Feed& feed, int64_t epoch, int64_t first = 0) {
  for (int64_t step = first; step < feed.steps(); ++step) {
    BOOST_TEST(!batches.at_end());
    check_batch(batches.next(), epoch, step, feed.rows(step));
    BOOST_TEST(batches.step() == step);
  }
  BOOST_TEST(batches.at_end());
  BOOST_CHECK_THROW(batches.next(), EndOfData);
  BOOST_CHECK_THROW(batches.next(), EndOfData);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(prefetch)

BOOST_AUTO_TEST_CASE(batches_come_in_order) {
  for (const int delay : {fast, slow})
    for (const int64_t steps : {1, 2, 3, 4, 5, 40}) {
      const auto feed = std::make_shared<TestFeed>(steps, delay);
      Prefetcher batches(feed);
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        batches.start(epoch);
        check_epoch(batches, *feed, epoch);
      }
    }
}

BOOST_AUTO_TEST_CASE(before_a_start_there_is_nothing) {
  Prefetcher batches(std::make_shared<TestFeed>(3, fast));
  BOOST_TEST(batches.at_end());
  BOOST_CHECK_THROW(batches.next(), EndOfData);
}

BOOST_AUTO_TEST_CASE(a_start_may_come_at_any_time) {
  const auto feed = std::make_shared<TestFeed>(20, slow);
  Prefetcher batches(feed);
  for (int64_t taken = 0; taken < 8; ++taken) {
    batches.start(taken);
    for (int64_t step = 0; step < taken; ++step) check_batch(batches.next(), taken, step, 2);
  }
  batches.start(9, 15);
  check_epoch(batches, *feed, 9, 15);
  batches.start(9, 20);
  check_epoch(batches, *feed, 9, 20);
}

BOOST_AUTO_TEST_CASE(it_may_go_at_any_time) {
  for (int64_t taken = 0; taken < 12; ++taken) {
    Prefetcher batches(std::make_shared<TestFeed>(100, slow));
    batches.start(0);
    for (int64_t step = 0; step < taken; ++step) check_batch(batches.next(), 0, step, 2);
  }
}

/// The thread may begin only after it has been told to stop.
BOOST_AUTO_TEST_CASE(an_epoch_of_which_nothing_is_read_may_end_at_once) {
  const auto feed = std::make_shared<TestFeed>(100, slow);
  Prefetcher batches(feed);
  batches.start(0);
  for (int64_t step = 0; step < 3; ++step) check_batch(batches.next(), 0, step, 2);
  for (int64_t epoch = 1; epoch < 500; ++epoch) batches.start(epoch);
  check_epoch(batches, *feed, 499);
}

BOOST_AUTO_TEST_CASE(slow_batches_are_read_in_the_background) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0 || CPU_COUNT(&cores) < 2) return;
  const auto readers = [](int delay) {
    const auto feed = std::make_shared<TestFeed>(50, delay);
    Prefetcher batches(feed);
    batches.start(0);
    while (!batches.at_end()) batches.next();
    return feed->readers();
  };
  BOOST_TEST(readers(slow).size() == 2u);
  // On a busy machine, a quick batch may take long, too.
  bool in_place = false;
  for (int tries = 0; tries < 200 && !in_place; ++tries)
    in_place = readers(fast) == std::set{std::this_thread::get_id()};
  BOOST_TEST(in_place);
}

BOOST_AUTO_TEST_CASE(errors_surface_and_the_step_is_tried_again) {
  for (const int delay : {fast, slow})
    for (const int64_t bad : {0, 1, 2, 7, 19}) {
      const auto feed = std::make_shared<TestFeed>(20, delay);
      Prefetcher batches(feed);
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        feed->fail(bad, 2);
        batches.start(epoch);
        for (int64_t step = 0; step < bad; ++step) check_batch(batches.next(), epoch, step, 2);
        BOOST_CHECK_THROW(batches.next(), DataError);
        BOOST_CHECK_THROW(batches.next(), DataError);
        BOOST_TEST(batches.step() == bad - 1);
        check_epoch(batches, *feed, epoch, bad);
      }
    }
}

BOOST_AUTO_TEST_CASE(an_error_that_was_not_reached_is_forgotten) {
  const auto feed = std::make_shared<TestFeed>(20, slow);
  Prefetcher batches(feed);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    batches.start(epoch);
    check_epoch(batches, *feed, epoch);
    feed->fail(2, 1);
    batches.start(epoch);
    check_batch(batches.next(), epoch, 0, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // by now step 2 has failed in the background
    feed->fail(-1, 1);
  }
}

BOOST_AUTO_TEST_CASE(a_batch_that_is_held_is_not_written_again) {
  for (const int delay : {fast, slow}) {
    const auto feed = std::make_shared<TestFeed>(30, delay);
    Prefetcher batches(feed);
    std::vector<std::vector<Tensor>> kept;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      batches.start(epoch);
      while (!batches.at_end()) {
        const auto batch = batches.next();
        kept.emplace_back(batch.begin(), batch.end());
      }
    }
    for (int64_t i = 0; i < 60; ++i)
      check_batch(kept[static_cast<size_t>(i)], i / 30, i % 30, feed->rows(i % 30));
  }
}

/// How many batches are read ahead, and so have buffers, differs with the time that each takes.
BOOST_AUTO_TEST_CASE(released_buffers_are_reused) {
  const auto feed = std::make_shared<TestFeed>(50, fast);
  const int64_t before = memory_stats().allocations;
  Prefetcher batches(feed);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    batches.start(epoch);
    for (int i = 0; i < 50; ++i) batches.next();  // the last one is short
  }
  BOOST_TEST(memory_stats().allocations - before < 50);  // of 150 batches
}

BOOST_AUTO_TEST_CASE(a_slow_user_and_a_slow_feed) {
  const auto feed = std::make_shared<TestFeed>(200, 30);
  Prefetcher batches(feed);
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    batches.start(epoch);
    for (int64_t step = 0; step < 200; ++step) {
      check_batch(batches.next(), epoch, step, feed->rows(step));
      if (step % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50 * (step % 5)));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
