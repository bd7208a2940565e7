#include <boost/test/unit_test.hpp>

#include "communicator_cases.h"
#include "communicator_ranks.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

/// The ranks of `processes` times `threads`, with threads in place of processes.
struct Job {
  Job(int processes, int threads) : world(make_thread_group(processes)) {
    for (const auto& process : world)
      for (auto& rank : make_nested_group(threads, process)) ranks.push_back(std::move(rank));
  }
  Group world, ranks;
};

std::string line_of(unsigned line) { return "communicator_nested_test.cpp:" + std::to_string(line) + ")"; }

}  // namespace

BOOST_AUTO_TEST_SUITE(communicator_nested)

BOOST_AUTO_TEST_CASE(collectives) {
  for (const auto& [processes, threads] : std::vector<std::pair<int, int>>{{2, 2}, {3, 2}, {2, 3}, {2, 1}})
    for (const DType dtype : {float32, float64, int32, float16, bfloat16})
      for (const int64_t elements : {0, 1, 7, 4099}) {
        const Job job(processes, threads);
        std::vector<std::string> wrong(job.ranks.size());
        const auto errors = run_ranks(job.ranks, [&, threads = threads](Communicator& self) {
          wrong[static_cast<size_t>(self.rank())] = check_collectives(self, elements, dtype, threads);
        });
        for (const std::string& error : errors) BOOST_TEST(error == "");
        for (const std::string& text : wrong) BOOST_TEST(text == "");
      }
}

BOOST_AUTO_TEST_CASE(ranks_and_sizes) {
  const Job job(3, 2);
  BOOST_REQUIRE(job.ranks.size() == 6u);
  for (int rank = 0; rank < 6; ++rank) {
    BOOST_TEST(job.ranks[static_cast<size_t>(rank)]->rank() == rank);
    BOOST_TEST(job.ranks[static_cast<size_t>(rank)]->size() == 6);
  }
  BOOST_CHECK_THROW(make_nested_group(0, make_thread_group(1)[0]), Error);
  const Group alone = make_nested_group(2, make_thread_group(1)[0]);
  BOOST_TEST(alone[1]->rank() == 1);
  BOOST_TEST(alone[1]->size() == 2);
  // Their world has one rank and needs no calls.
  const auto errors = run_ranks(alone, [](Communicator& self) { self.barrier(); });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(sums_of_one_size_are_exact_in_each_dtype) {
  const Job job(2, 2);
  const auto errors = run_ranks(job.ranks, [](Communicator& self) {
    for (int turn = 0; turn < 2; ++turn) {
      Tensor singles = full({3}, 0.5, float32), doubles = full({3}, 0x1p-40 + 1, float64),
             integers = full({3}, (int64_t{1} << 50) + self.rank(), int64);
      self.all_reduce(singles);
      self.all_reduce(doubles);
      self.all_reduce(integers);
      for (const float value : singles.span<float>())
        if (value != 2) throw Error("a wrong sum of float32");
      for (const double value : doubles.span<double>())
        if (value != 0x1p-38 + 4) throw Error("a wrong sum of float64");
      for (const int64_t value : integers.span<int64_t>())
        if (value != (int64_t{1} << 52) + 6) throw Error("a wrong sum of int64");
    }
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(bools_are_moved) {
  const Job job(2, 2);
  const auto errors = run_ranks(job.ranks, [](Communicator& self) {
    Tensor values = tensor({self.rank() == 3, true}), all({8}, boolean);
    self.broadcast(values, 3);
    self.all_gather(values, all);
    for (const bool value : all.span<bool>())
      if (!value) throw Error("a bool was lost");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(a_stop_request_reaches_all_ranks) {
  for (int marked = 0; marked < 4; ++marked) {
    const Job job(2, 2);
    std::vector<std::string> seen(4);
    const auto errors = run_ranks(job.ranks, [&](Communicator& self) {
      for (int turn = 0; turn < 6; ++turn) {
        if (turn == 2 && self.rank() == marked) self.request_stop();
        if (turn == 4) self.clear_stop();
        self.barrier();
        seen[static_cast<size_t>(self.rank())] += self.stop_requested() ? '1' : '0';
      }
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    for (const std::string& text : seen) BOOST_TEST(text == "001100");
  }
}

BOOST_AUTO_TEST_CASE(an_error_on_one_rank_reaches_all_processes) {
  for (int failing = 0; failing < 4; ++failing) {
    const Job job(2, 2);
    const unsigned line = __LINE__ + 5;
    const auto errors = run_ranks(job.ranks, [&](Communicator& self) {
      Tensor values = zeros({8});
      self.all_reduce(values);
      if (self.rank() == failing) throw OutOfMemory("no memory for the 7th step");
      self.all_reduce(values);
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& error = errors[static_cast<size_t>(rank)];
      if (rank == failing)
        BOOST_TEST(error == "own: no memory for the 7th step");
      else
        BOOST_TEST(error.ends_with(line_of(line) + ": rank " + std::to_string(failing) +
                                   " failed: no memory for the 7th step"));
    }
    const auto later = run_ranks(job.ranks, [](Communicator& self) { self.barrier(); });
    for (const std::string& error : later) BOOST_TEST(contains(error, "no memory for the 7th step"));
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_call_something_else_are_errors_everywhere) {
  // On one thread, or on all threads of a process.
  for (const bool whole_process : {false, true}) {
    const Job job(2, 2);
    const auto errors = run_ranks(job.ranks, [&](Communicator& self) {
      Tensor values = zeros({8});
      if (self.rank() == 3 || (whole_process && self.rank() == 2))
        self.all_reduce_weighted(values, std::vector<double>{1, 1, 1, 0.5});
      else
        self.all_reduce_weighted(values, std::vector<double>{1, 1, 1, 2});
    });
    const std::string mine = "all_reduce_weighted by 1, 1, 1, 2 of float32 [8] (",
                      other = "all_reduce_weighted by 1, 1, 1, 0.5 of float32 [8] (";
    for (const std::string& error : errors) {
      BOOST_TEST(contains(error, mine));
      BOOST_TEST(contains(error, other));
    }
    if (whole_process) {
      BOOST_TEST(contains(errors[0], "of the processes, with 2 ranks each: rank 1 called " + other));
      BOOST_TEST(contains(errors[3], "of the processes, with 2 ranks each: rank 0 called " + mine));
    } else {
      BOOST_TEST(contains(errors[0], "rank 2 called") != contains(errors[0], "rank 3 called"));
      BOOST_TEST(contains(errors[2], ": rank 3 called " + other));
      BOOST_TEST(contains(errors[3], ": rank 2 called " + mine));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_comes_is_named_everywhere) {
  const Job job(2, 2);
  std::atomic<int> thrown = 0;
  const auto errors = run_ranks(job.ranks, [&](Communicator& self) {
    Tensor values = zeros({8});
    self.all_reduce(values);
    self.set_timeout(2);
    if (self.rank() == 3)
      while (thrown < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      self.barrier();
    } catch (...) {
      ++thrown;
      throw;
    }
  });
  for (const std::string& error : errors)
    BOOST_TEST(contains(error, "rank 3 has not come within 2 s, after all_reduce of float32 [8] ("));
}

BOOST_AUTO_TEST_CASE(a_process_that_is_lost_is_an_error_for_all_threads) {
  const Job job(2, 2);
  const auto errors = run_ranks(job.ranks, [&](Communicator& self) {
    Tensor values = zeros({8});
    self.all_reduce(values);
    if (self.rank() >= 2) {
      if (self.rank() == 2) job.world[1]->fail("rank 1 died");
      return;
    }
    self.all_reduce(values);
  });
  for (const size_t rank : {0, 1}) {
    BOOST_TEST(contains(errors[rank], "all_reduce of float32 [8] ("));
    BOOST_TEST(errors[rank].ends_with("): of the processes, with 2 ranks each: rank 1 died"));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_left_is_missed_in_all_processes) {
  Job job(2, 2);
  std::vector<std::thread> threads;
  std::vector<std::string> errors(4);
  for (size_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const auto self = std::move(job.ranks[rank]);
      self->barrier();
      if (rank == 3) return;
      try {
        self->barrier();
      } catch (const CommunicatorError& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const size_t rank : {0, 1, 2}) BOOST_TEST(contains(errors[rank], "rank 3 has left"));
}

BOOST_AUTO_TEST_SUITE_END()
