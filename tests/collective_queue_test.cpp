#include <atomic>
#include <boost/test/unit_test.hpp>
#include <thread>

#include "communicator_cases.h"
#include "communicator_ranks.h"
#include "espalier/executor/communicators/collective_queue.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

std::string line_of(unsigned line) { return "collective_queue_test.cpp:" + std::to_string(line) + ")"; }

/// The error that `wait` throws, or "".
std::string error_of(CollectiveQueue& queue) {
  try {
    queue.wait();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(collective_queue)

BOOST_AUTO_TEST_CASE(collectives_run_in_the_order_of_their_calls) {
  const Group group = make_thread_group(3);
  const auto errors = run_ranks(group, [&](Communicator& self) {
    const auto rank = static_cast<size_t>(self.rank());
    CollectiveQueue queue(group[rank]);
    const std::vector<double> weights = {0.25, 1, 2.5};
    for (int step = 0; step < 50; ++step) {
      std::vector<Tensor> buckets;
      for (const int64_t elements : {1, 300, 70000, 7, 5000}) {  // the third one wakes the queue
        buckets.push_back(values_of(self.rank(), elements, float32));
        queue.all_reduce_weighted(buckets.back(), weights);
      }
      // A second collective on the result of the first.
      queue.all_reduce_weighted(buckets[1], std::vector<double>{1, 0, 0});
      queue.wait();
      for (const Tensor& bucket : buckets)
        if (!same_bits(bucket, weighted_sum(weights, bucket.elements(), float32))) throw Error("a wrong sum");
      if (self.stop_requested() != (step == 20)) throw Error("a stop request at another step");
      step == 19 && rank == 1 ? self.request_stop() : self.clear_stop();
      self.barrier();  // the queue is idle between steps
    }
    queue.wait();
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(the_owner_goes_on_meanwhile) {
  const Group group = make_thread_group(2);
  std::atomic<bool> given = false;
  const auto errors = run_ranks(group, [&](Communicator& self) {
    Tensor values = full({10}, self.rank() + 1);
    const std::vector<double> weights = {1, 1};
    if (self.rank() == 1) {
      // Rank 1 calls only after the call of rank 0 has returned.
      while (!given) std::this_thread::yield();
      return self.all_reduce_weighted(values, weights);
    }
    CollectiveQueue queue(group[0]);
    queue.all_reduce_weighted(values, weights);
    given = true;
    queue.wait();
    if (values.at<float>({9}) != 3) throw Error("a wrong sum");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(the_first_error_is_thrown_and_what_follows_is_not_tried) {
  const Group group = make_thread_group(2);
  const unsigned line = __LINE__ + 9;
  const auto errors = run_ranks(group, [&](Communicator& self) {
    const auto rank = static_cast<size_t>(self.rank());
    const std::vector<double> weights = {1, 1};
    Tensor values = full({4}, self.rank() + 1), later = full({4}, 7);
    CollectiveQueue queue(group[rank]);
    queue.all_reduce_weighted(values, weights);
    queue.wait();
    if (rank == 1) throw OutOfMemory("no memory for the 7th step");
    queue.all_reduce_weighted(values, weights);
    queue.all_reduce_weighted(later, weights);
    const std::string first = error_of(queue);
    BOOST_TEST(contains(first, line_of(line)));
    BOOST_TEST(contains(first, "rank 1 failed: no memory for the 7th step"));
    BOOST_TEST(values.at<float>({0}) == 3);
    BOOST_TEST(later.at<float>({0}) == 7);
    BOOST_TEST(error_of(queue) == "");  // nothing was queued
    queue.all_reduce_weighted(later, weights);
    BOOST_TEST(contains(error_of(queue), "rank 1 failed: no memory for the 7th step"));
  });
  BOOST_TEST(errors[0] == "");
  BOOST_TEST(errors[1] == "own: no memory for the 7th step");
}

BOOST_AUTO_TEST_CASE(a_ranks_own_error_reaches_owner_and_others) {
  const Group group = make_thread_group(2);
  const auto errors = run_ranks(group, [&](Communicator& self) {
    CollectiveQueue queue(group[static_cast<size_t>(self.rank())]);
    Tensor values = self.rank() == 1 ? zeros({4}, int32) : zeros({4});
    queue.all_reduce_weighted(values, std::vector<double>{1, 1});
    queue.wait();
  });
  BOOST_TEST(contains(errors[1], "own: all_reduce_weighted by 1, 1 of int32 [4] ("));
  BOOST_TEST(contains(errors[1], "weights are for reals"));
  BOOST_TEST(contains(errors[0], "rank 1 failed: all_reduce_weighted by 1, 1 of int32 [4] ("));
}

BOOST_AUTO_TEST_CASE(destruction_finishes_the_queue_and_does_not_hang) {
  // Without a wait: the destructor of the queue completes all collectives.
  const Group group = make_thread_group(2);
  auto errors = run_ranks(group, [&](Communicator& self) {
    Tensor values = full({4}, self.rank() + 1);
    {
      CollectiveQueue queue(group[static_cast<size_t>(self.rank())]);
      for (int i = 0; i < 10; ++i) queue.all_reduce_weighted(values, std::vector<double>{0.5, 0.5});
    }
    if (values.at<float>({0}) != 1.5f) throw Error("the queue ended before its collectives");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
  // The other rank fails, before or while this one waits for it.
  for (const bool before : {true, false}) {
    const Group failing = make_thread_group(2);
    const auto fail = [&] { failing[1]->abort(std::make_exception_ptr(Error("gone"))); };
    std::thread other;
    {
      Tensor values = zeros({4});
      CollectiveQueue queue(failing[0]);
      if (before) fail();
      for (int i = 0; i < 10; ++i) queue.all_reduce_weighted(values, std::vector<double>{1, 1});
      if (!before) other = std::thread(fail);
    }
    if (!before) other.join();
    BOOST_CHECK_EXCEPTION(failing[0]->barrier(), CommunicatorError,
                          [](const Error& error) { return contains(error.what(), "rank 1 failed: gone"); });
  }
}

BOOST_AUTO_TEST_CASE(what_is_done_keeps_no_memory) {
  const Group group = make_thread_group(1);
  CollectiveQueue queue(group[0]);
  const int64_t before = memory_stats().live_bytes;
  for (int i = 0; i < 3; ++i) queue.all_reduce_weighted(ones({1000}), std::vector<double>{1});
  queue.wait();
  BOOST_TEST(memory_stats().live_bytes == before);
}

BOOST_AUTO_TEST_SUITE_END()
