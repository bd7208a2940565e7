#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "communicator_cases.h"
#include "communicator_ranks.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/reduce_ranks.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

/// A line of this file, as errors name it.
std::string line_of(unsigned line) { return "communicator_test.cpp:" + std::to_string(line) + ")"; }

void random_delay(std::minstd_rand& random) {
  const auto micros = random() % 4 ? 0 : random() % 200;
  if (micros) std::this_thread::sleep_for(std::chrono::microseconds(micros));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(communicator)

BOOST_AUTO_TEST_CASE(threads_agree_with_plain_loops) {
  for (const int size : {1, 2, 3, 4, 8})
    for (const DType dtype : {float32, float64, int32, int64, float16, bfloat16})
      for (const int64_t elements : {0, 1, 7, 64, 4099}) {
        std::vector<std::string> wrong(static_cast<size_t>(size));
        const auto errors = run_ranks(size, [&](Communicator& self) {
          wrong[static_cast<size_t>(self.rank())] = check_collectives(self, elements, dtype);
        });
        for (const std::string& error : errors) BOOST_TEST(error == "");
        for (const std::string& text : wrong) BOOST_TEST(text == "");
      }
}

BOOST_AUTO_TEST_CASE(long_tensors) {
  for (const int size : {2, 3, 5}) {
    const Tensor expected = reduced(size, 1'000'003, float32, Reduction::mean);
    std::atomic<int> same = 0;
    const auto errors = run_ranks(size, [&](Communicator& self) {
      Tensor values = values_of(self.rank(), 1'000'003, float32);
      self.all_reduce(values, Reduction::mean);
      same += same_bits(values, expected);
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    BOOST_TEST(same == size);
  }
}

BOOST_AUTO_TEST_CASE(bools_are_moved_but_not_reduced) {
  const auto errors = run_ranks(2, [](Communicator& self) {
    Tensor values = tensor({self.rank() == 1, true}), all({4}, boolean);
    self.broadcast(values, 1);
    self.all_gather(values, all);
    for (const bool value : all.span<bool>())
      if (!value) throw Error("a bool was lost");
    self.barrier();
    self.all_reduce(values);
  });
  for (const std::string& error : errors) BOOST_TEST(contains(error, "bools cannot be reduced"));
}

BOOST_AUTO_TEST_CASE(nan_goes_through_all_reductions) {
  const auto errors = run_ranks(3, [](Communicator& self) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min}) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      Tensor values = tensor({self.rank() == 0 ? nan : 1.0f, self.rank() == 2 ? nan : 1.0f, 1.0f});
      self.all_reduce(values, reduction);
      if (!std::isnan(values.at<float>({0})) || !std::isnan(values.at<float>({1})))
        throw Error("NaN is lost");
      if (std::isnan(values.at<float>({2}))) throw Error("NaN from nowhere");
    }
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_timing) {
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> same = 0;
    const auto errors = run_ranks(4, [&](Communicator& self) {
      std::minstd_rand random(static_cast<unsigned>(17 * round + self.rank() + 1));
      for (const int64_t elements : {5, 300, 20'000}) {
        Tensor values = values_of(self.rank(), elements, float32);
        random_delay(random);
        self.all_reduce(values);
        same += same_bits(values, reduced(4, elements, float32, Reduction::sum));
      }
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    BOOST_TEST(same == 4 * 3);
  }
}

BOOST_AUTO_TEST_CASE(many_small_collectives_in_a_row) {
  const auto errors = run_ranks(3, [](Communicator& self) {
    std::minstd_rand random(static_cast<unsigned>(self.rank() + 1));
    Tensor values({3}, int64), all({9}, int64);
    for (int64_t turn = 0; turn < 1000; ++turn) {
      for (int64_t& value : values.span<int64_t>()) value = turn + self.rank();
      if (turn % 16 == 0) random_delay(random);
      self.all_reduce(values, Reduction::max);
      if (values.at<int64_t>({2}) != turn + 2) throw Error("a result of another turn");
      values.at<int64_t>({0}) = self.rank();
      self.all_gather(values, all);
      if (all.at<int64_t>({3}) != 1 || all.at<int64_t>({6}) != 2) throw Error("a part is in another's place");
    }
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(ranks_that_call_something_else_are_named) {
  const unsigned line = __LINE__ + 6;
  const auto errors = run_ranks(3, [](Communicator& self) {
    Tensor values = zeros({100, 10}), bias = zeros({10});
    if (self.rank() == 2)
      self.broadcast(bias, 0);
    else
      self.all_reduce(values);
  });
  const std::string reduce = "all_reduce of float32 [100, 10] (",
                    cast = "broadcast of float32 [10] from rank 0 (";
  for (const size_t rank : {0, 1}) {
    BOOST_TEST(contains(errors[rank], reduce));
    BOOST_TEST(contains(errors[rank], line_of(line) + ": rank 2 called " + cast));
    BOOST_TEST(errors[rank].ends_with(line_of(line - 2)));
  }
  BOOST_TEST(contains(errors[2], cast));
  BOOST_TEST(contains(errors[2], line_of(line - 2) + ": rank 0 called " + reduce));
}

BOOST_AUTO_TEST_CASE(everything_that_may_differ_is_seen) {
  const std::vector<std::pair<RankProgram, RankProgram>> pairs = {
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t);
       },
       [](Communicator& self) {
         Tensor t = zeros({3});
         self.all_reduce(t);
       }},
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t);
       },
       [](Communicator& self) {
         Tensor t = zeros({2, 1});
         self.all_reduce(t);
       }},
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t);
       },
       [](Communicator& self) {
         Tensor t = zeros({2}, float64);
         self.all_reduce(t);
       }},
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t);
       },
       [](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t, Reduction::max);
       }},
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.broadcast(t, 0);
       },
       [](Communicator& self) {
         Tensor t = zeros({2});
         self.broadcast(t, 1);
       }},
      {[](Communicator& self) {
         Tensor t = zeros({2});
         self.all_reduce(t);
       },
       [](Communicator& self) { self.barrier(); }}};
  for (const auto& [first, second] : pairs) {
    const auto group = make_thread_group(2);
    const RankProgram either = [&](Communicator& self) { self.rank() == 0 ? first(self) : second(self); };
    auto errors = run_ranks(group, either);
    BOOST_TEST(contains(errors[0], "rank 1 called "));
    BOOST_TEST(contains(errors[1], "rank 0 called "));
    // The group cannot be used after that; its errors contain the reason.
    errors = run_ranks(group, [](Communicator& self) { self.barrier(); });
    for (const std::string& error : errors) BOOST_TEST(contains(error, "an earlier collective failed: "));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_comes_is_named_in_time) {
  std::atomic<int> thrown = 0;
  const unsigned line = __LINE__ + 4;
  const auto errors = run_ranks(4, [&](Communicator& self) {
    self.set_timeout(2);
    Tensor values = zeros({8});
    self.all_reduce(values);
    if (self.rank() == 2) {
      while (thrown < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      self.barrier();
    }
    try {
      self.broadcast(values, 1);
    } catch (...) {
      ++thrown;
      throw;
    }
  });
  const std::string late = "rank 2 has not come within 2 s, after all_reduce of float32 [8] (";
  for (const size_t rank : {0, 1, 3}) {
    BOOST_TEST(contains(errors[rank], "broadcast of float32 [8] from rank 1 ("));
    BOOST_TEST(contains(errors[rank], line_of(line + 6) + ": " + late));
    BOOST_TEST(errors[rank].ends_with(line_of(line)));
  }
  BOOST_TEST(contains(errors[2], "barrier ("));
  BOOST_TEST(contains(errors[2], late));
}

BOOST_AUTO_TEST_CASE(a_skipped_collective_is_an_error) {
  // Rank 0 continues with another collective, or ends.
  for (const bool goes_on : {true, false}) {
    Group group = make_thread_group(2);
    const auto errors = run_ranks(group, [&](Communicator& self) {
      self.set_timeout(2);
      Tensor values = zeros({8});
      if (self.rank() == 1) self.all_reduce(values);
      if (goes_on || self.rank() == 1) self.barrier();
    });
    BOOST_TEST(contains(errors[1], goes_on ? "rank 0 called barrier (" : "rank 0 has not come within 2 s"));
    if (goes_on) BOOST_TEST(contains(errors[0], "rank 1 called all_reduce of float32 [8] ("));
  }
}

BOOST_AUTO_TEST_CASE(an_error_on_one_rank_reaches_waiting_ranks) {
  const auto errors = run_ranks(3, [](Communicator& self) {
    Tensor values = zeros({8});
    self.all_reduce(values);
    if (self.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other ranks block by now
      throw OutOfMemory("no memory for the 7th step");
    }
    self.all_reduce(values);
  });
  BOOST_TEST(errors[1] == "own: no memory for the 7th step");
  for (const size_t rank : {0, 2}) {
    BOOST_TEST(contains(errors[rank], "all_reduce of float32 [8] ("));
    BOOST_TEST(errors[rank].ends_with("): rank 1 failed: no memory for the 7th step"));
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_that_cannot_be_used_reaches_all_ranks) {
  for (const int kind : {0, 1, 2}) {
    const auto errors = run_ranks(2, [&](Communicator& self) {
      Tensor values = zeros({2, 6}), part = zeros({6});
      if (self.rank() == 0) return self.reduce_scatter(values, part);
      Tensor wrong;
      if (kind == 1) wrong = values.slice(1, 0, 3);
      if (kind == 2) wrong = zeros({5});
      kind == 2 ? self.reduce_scatter(values, wrong) : self.all_reduce(wrong);
    });
    const std::string expected[] = {"undefined", "has gaps", "2 ranks' parts of shape [5] do not make"};
    BOOST_TEST(contains(errors[1], expected[kind]));
    BOOST_TEST(contains(errors[0], "rank 1 failed: "));
    BOOST_TEST(contains(errors[0], expected[kind]));
  }
  const auto errors = run_ranks(1, [](Communicator& self) {
    Tensor values = zeros({2}, int32);
    BOOST_CHECK_THROW(self.all_reduce(values, Reduction::mean), TypeError);
    BOOST_CHECK_THROW(self.broadcast(values, 0), CommunicatorError);
  });
  BOOST_TEST(errors[0] == "");
  const Group group = make_thread_group(1);
  Tensor values = zeros({2});
  BOOST_CHECK_THROW(group[0]->broadcast(values, 1), IndexError);
}

BOOST_AUTO_TEST_CASE(the_first_error_stays) {
  const Group group = make_thread_group(2);
  group[1]->abort(std::make_exception_ptr(Error("the first")));
  group[0]->abort(std::make_exception_ptr(Error("the second")));
  group[0]->abort(nullptr);
  const auto errors = run_ranks(group, [](Communicator& self) { self.barrier(); });
  for (const std::string& error : errors) BOOST_TEST(error.ends_with(": rank 1 failed: the first"));
}

BOOST_AUTO_TEST_CASE(a_rank_that_left_is_missed_at_once) {
  Group group = make_thread_group(2);
  std::thread leaves([other = std::move(group[1])]() mutable {
    other->barrier();
    other.reset();
  });
  group[0]->barrier();
  try {
    group[0]->barrier();
    BOOST_ERROR("met a rank that had left");
  } catch (const CommunicatorError& error) {
    BOOST_TEST(std::string(error.what()).ends_with("): rank 1 has left"));
  }
  leaves.join();
}

BOOST_AUTO_TEST_CASE(weights_must_make_sense_and_agree) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::vector<double>, std::string>> wrong = {
      {{}, "0 weights for 2 ranks"},          {{1}, "1 weights for 2 ranks"},
      {{1, 1, 1}, "3 weights for 2 ranks"},   {{1, -0.5}, "-0.5 is no weight"},
      {{inf, 1}, "inf is no weight"},         {{1e200, 1}, "1e+200 is no weight"},
      {{std::nan(""), 1}, "nan is no weight"}};
  for (const auto& [weights, message] : wrong) {
    const auto errors = run_ranks(2, [&](Communicator& self) {
      Tensor values = zeros({3});
      if (self.rank() == 1)
        self.all_reduce_weighted(values, weights);
      else
        self.all_reduce_weighted(values, std::vector<double>{1, 1});
    });
    BOOST_TEST(contains(errors[1], "own: all_reduce_weighted"));
    BOOST_TEST(contains(errors[1], message));
    BOOST_TEST(contains(errors[0], "rank 1 failed: "));
    BOOST_TEST(contains(errors[0], message));
  }
  auto errors = run_ranks(2, [](Communicator& self) {
    Tensor values = zeros({3}, int32);
    self.all_reduce_weighted(values, std::vector<double>{1, 1});
  });
  for (const std::string& error : errors) BOOST_TEST(contains(error, "weights are for reals"));

  // Weights that are valid but differ, or are missing on one rank.
  for (const bool plain : {false, true}) {
    errors = run_ranks(3, [&](Communicator& self) {
      Tensor values = zeros({3});
      if (self.rank() != 2) return self.all_reduce_weighted(values, std::vector<double>{1, 0.5, 2});
      plain ? self.all_reduce(values) : self.all_reduce_weighted(values, std::vector<double>{1, 0.5, 2.25});
    });
    const std::string by = "all_reduce_weighted by 1, 0.5, 2 of float32 [3] (";
    for (const size_t rank : {0, 1}) {
      BOOST_TEST(errors[rank].starts_with(by));
      BOOST_TEST(contains(errors[rank], plain ? "rank 2 called all_reduce of"
                                              : "rank 2 called all_reduce_weighted by 1, 0.5, 2.25 of"));
    }
    BOOST_TEST(contains(errors[2], "rank 0 called " + by));
  }
}

BOOST_AUTO_TEST_CASE(a_stop_request_reaches_all_ranks_at_the_same_collective) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> seen(3);
    const auto errors = run_ranks(3, [&](Communicator& self) {
      std::minstd_rand random(static_cast<unsigned>(13 * round + self.rank() + 1));
      Tensor values = zeros({5});
      std::string& mine = seen[static_cast<size_t>(self.rank())];
      for (int turn = 0; turn < 8; ++turn) {
        if (turn == 2 && self.rank() == 1) self.request_stop();
        if (turn == 4 && self.rank() == 2) self.request_stop();
        if (turn == 5 && self.rank() == 1) self.clear_stop();
        if (turn == 6 && self.rank() == 2) self.clear_stop();
        random_delay(random);
        turn % 2 ? self.barrier() : self.all_reduce(values);
        mine += self.stop_requested() ? '1' : '0';
      }
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    for (const std::string& text : seen) BOOST_TEST(text == "00111100");
  }
  // A request at any moment reaches all ranks at one collective.
  for (int round = 0; round < 20; ++round) {
    const Group group = make_thread_group(3);
    std::vector<int> stopped(3, -1);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(37 * round));
      group[1]->request_stop();
    });
    const auto errors = run_ranks(group, [&](Communicator& self) {
      int turn = 0;
      for (; !self.stop_requested(); ++turn) self.barrier();
      stopped[static_cast<size_t>(self.rank())] = turn;
    });
    other.join();
    for (const std::string& error : errors) BOOST_TEST(error == "");
    BOOST_TEST(stopped[1] == stopped[0]);
    BOOST_TEST(stopped[2] == stopped[0]);
  }
}

BOOST_AUTO_TEST_CASE(errors_and_arrivals_at_one_moment) {
  // In any order, no rank hangs, and each has the result or an error.
  for (int round = 0; round < 60; ++round) {
    std::atomic<int> wrong = 0;
    const auto errors = run_ranks(3, [&](Communicator& self) {
      std::minstd_rand random(static_cast<unsigned>(31 * round + self.rank() + 1));
      for (int turn = 0; turn < 8; ++turn) {
        Tensor values = full({40}, self.rank());
        if (self.rank() == 1 && turn == 5) throw Error("stop");
        if (self.rank() == 2 && turn == 5) self.set_timeout(1e-5);
        random_delay(random);
        self.all_reduce(values);
        wrong += values.at<float>({39}) != 3;
      }
    });
    BOOST_TEST(wrong == 0);
    for (const std::string& error : errors) BOOST_REQUIRE(error != "");
    BOOST_REQUIRE(errors[1] == "own: stop");
  }
}

BOOST_AUTO_TEST_CASE(settings) {
  BOOST_CHECK_THROW(make_thread_group(0), Error);
  const Group group = make_thread_group(3);
  for (int rank = 0; rank < 3; ++rank) {
    BOOST_TEST(group[static_cast<size_t>(rank)]->rank() == rank);
    BOOST_TEST(group[static_cast<size_t>(rank)]->size() == 3);
  }
  BOOST_TEST(group[0]->timeout() == 60);
  group[0]->set_timeout(1.5);
  BOOST_TEST(group[0]->timeout() == 1.5);
  for (const double seconds : {0.0, -1.0, std::nan("")})
    BOOST_CHECK_THROW(group[0]->set_timeout(seconds), Error);

  setenv("ESPALIER_COLLECTIVE_TIMEOUT", "0.5", 1);
  BOOST_TEST(make_thread_group(1)[0]->timeout() == 0.5);
  for (const char* wrong : {"soon", "0", "-1", "1s"}) {
    setenv("ESPALIER_COLLECTIVE_TIMEOUT", wrong, 1);
    BOOST_CHECK_THROW(make_thread_group(1), Error);
  }
  unsetenv("ESPALIER_COLLECTIVE_TIMEOUT");
}

BOOST_AUTO_TEST_CASE(chunks_cover_all_elements) {
  for (const int64_t elements : {0, 1, 63, 64, 65, 1000, 1'000'003})
    for (const int ranks : {1, 2, 3, 8}) {
      BOOST_TEST(chunk_begin(elements, ranks, 0) == 0);
      BOOST_TEST(chunk_begin(elements, ranks, ranks) == elements);
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t length = chunk_begin(elements, ranks, rank + 1) - chunk_begin(elements, ranks, rank);
        BOOST_TEST(length >= 0);
        BOOST_TEST(length <= elements / ranks + 64);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
