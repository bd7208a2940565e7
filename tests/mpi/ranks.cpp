// Run by mpirun in tests: ranks <scenario>. Every rank prints its result on its own line.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "../communicator_cases.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/collective_queue.h"
#include "espalier/executor/communicators/distributed.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

// One write, so that the lines of several ranks do not mix.
void say(const std::string& text) {
  const std::string line = "rank " + std::to_string(distributed::rank()) + ": " + text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::perror("write");
}

void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void collectives(Communicator& self) {
  if (self.size() != distributed::size() || self.rank() != distributed::rank()) throw Error("a wrong rank");
  if (distributed::local_rank() != self.rank()) throw Error("all ranks of this test are on one machine");
  std::minstd_rand random(static_cast<unsigned>(self.rank() + 1));
  for (int round = 0; round < 2; ++round)
    for (const DType dtype : {float32, float64, int32, int64, float16, bfloat16})
      for (const int64_t elements : {0, 1, 7, 4099}) {
        pause_for(1e-6 * static_cast<double>(random() % 2000));
        const std::string wrong = check_collectives(self, elements, dtype);
        if (!wrong.empty()) throw Error(wrong);
      }
  // Several pieces of each collective, the last one incomplete.
  const std::string wrong = check_collectives(self, 2'100'007, float32);
  if (!wrong.empty()) throw Error(wrong);
}

// Without OMP_NUM_THREADS. mpirun may bind each process to few cores.
void shares_cores(Communicator& self) {
  const int all = static_cast<int>(std::thread::hardware_concurrency()),
            share = std::max(1, all / self.size());
  if (num_threads() > share)
    throw Error(std::to_string(num_threads()) + " threads of " + std::to_string(all));
}

void all_reduce(Communicator& self) {
  Tensor values = zeros({8});
  self.all_reduce(values);
}

void mismatch(Communicator& self) {
  all_reduce(self);
  if (self.rank() != 1) return all_reduce(self);
  Tensor values = zeros({3});
  self.broadcast(values, 0);
}

void throws(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) {
    pause_for(0.1);
    throw OutOfMemory("no memory for the 7th step");
  }
  all_reduce(self);
}

void leaves(Communicator& self) {
  all_reduce(self);
  if (self.rank() != 1) all_reduce(self);
}

// One rank calls another collective than all_reduce.
void other_shape(Communicator& self) {
  all_reduce(self);
  if (self.rank() != 2) return all_reduce(self);
  Tensor values = zeros({2, 4});
  self.all_reduce(values);
}

void other_dtype(Communicator& self) {
  all_reduce(self);
  if (self.rank() != 2) return all_reduce(self);
  Tensor values = zeros({8}, float64);
  self.all_reduce(values);
}

void other_order(Communicator& self) {
  if (self.rank() == 2) self.barrier();
  all_reduce(self);
  if (self.rank() != 2) self.barrier();
}

void skips(Communicator& self) {
  all_reduce(self);
  if (self.rank() != 1) all_reduce(self);
  self.barrier();
}

void needs_too_much(Communicator& self) {
  all_reduce(self);
  Tensor values = self.rank() == 1 ? zeros({int64_t{1} << 46}) : zeros({8});
  self.all_reduce(values);
}

void crashes(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) raise(SIGSEGV);
  all_reduce(self);
}

void exits(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) std::exit(0);
  all_reduce(self);
}

void quits(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) _exit(0);
  all_reduce(self);
}

void lets_an_error_go(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) std::thread([] { throw Error("uncaught"); }).join();
  all_reduce(self);
}

void dies_at_once(Communicator& self) {
  if (self.rank() == 1) raise(SIGKILL);
  all_reduce(self);
}

// The ranks do nothing else, so a transfer is active when rank 1 dies.
void dies_in_a_transfer(Communicator& self) {
  Tensor values = zeros({8'000'000});
  all_reduce(self);
  if (self.rank() == 1)
    std::thread([] {
      pause_for(0.3);
      raise(SIGKILL);
    }).detach();
  while (true) self.all_reduce(values);
}

void dies(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 1) raise(SIGKILL);
  all_reduce(self);
}

void first_dies(Communicator& self) {
  all_reduce(self);
  if (self.rank() == 0) raise(SIGKILL);
  all_reduce(self);
}

void weights(Communicator& self) {
  all_reduce(self);
  Tensor values = zeros({3});
  self.all_reduce_weighted(values, std::vector<double>{1, self.rank() == 1 ? 0.25 : 0.5});
}

// A stop request on one rank, at any time, stops all ranks at the same step.
void marks(Communicator& self) {
  Tensor values = zeros({5});
  std::thread other([&] {
    pause_for(0.05);
    if (self.rank() == 1) self.request_stop();
  });
  int64_t steps = 0;
  for (; !self.stop_requested(); ++steps) self.all_reduce(values);
  other.join();
  Tensor all({self.size()}, int64), mine = full({1}, static_cast<double>(steps), int64);
  self.clear_stop();
  self.all_gather(mine, all);
  for (const int64_t theirs : all.span<int64_t>())
    if (theirs != steps) throw Error("they stopped at different steps");
  if (self.stop_requested()) throw Error("the stop request stays");
}

// Threads of several processes as ranks of one group; the process prints the errors of its ranks.
void nested(Communicator& world, const std::function<void(Communicator&)>& program) {
  const auto ranks = distributed::make_group({cpu(), cpu()}, distributed::world());
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < ranks.size(); ++thread)
    threads.emplace_back([&, thread] {
      try {
        program(*ranks[thread]);
      } catch (const CommunicatorError& error) {
        errors[thread] = error.what();
      } catch (const std::exception& error) {
        errors[thread] = std::string("own: ") + error.what();
        ranks[thread]->abort(std::current_exception());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t thread = 0; thread < ranks.size(); ++thread)
    if (!errors[thread].empty())
      say("thread " + std::to_string(ranks[thread]->rank()) + " of " + std::to_string(ranks[thread]->size()) +
          ": " + errors[thread]);
  if (world.size() * 2 != ranks[0]->size()) throw Error("a wrong number of ranks");
}

void nested_collectives(Communicator& world) {
  nested(world, [](Communicator& self) {
    for (const DType dtype : {float32, float64, int32, float16, bfloat16})
      for (const int64_t elements : {1, 7, 4099}) {
        const std::string wrong = check_collectives(self, elements, dtype, 2);
        if (!wrong.empty()) throw Error(wrong);
      }
    if (self.rank() == 1) self.request_stop();
    self.barrier();
    if (!self.stop_requested()) throw Error("the stop request is lost");
  });
}

void nested_throws(Communicator& world) {
  nested(world, [](Communicator& self) {
    all_reduce(self);
    if (self.rank() == 3) throw OutOfMemory("no memory for the 7th step");
    all_reduce(self);
  });
}

void nested_dies(Communicator& world) {
  nested(world, [](Communicator& self) {
    all_reduce(self);
    if (self.rank() == 3) raise(SIGKILL);
    all_reduce(self);
  });
}

// Collectives in a second thread.
void queue(Communicator& self) {
  CollectiveQueue queue(distributed::world());
  std::vector<double> weights(static_cast<size_t>(self.size()), 0.5);
  for (int step = 0; step < 20; ++step) {
    std::vector<Tensor> buckets;
    for (const int64_t elements : {7, 300'000}) {
      buckets.push_back(values_of(self.rank(), elements, float32));
      queue.all_reduce_weighted(buckets.back(), weights);
    }
    queue.wait();
    for (const Tensor& bucket : buckets)
      if (!same_bits(bucket, weighted_sum(weights, bucket.elements(), float32))) throw Error("a wrong sum");
  }
  queue.all_reduce_weighted(self.rank() == 1 ? zeros({2}) : zeros({8}), weights);
  queue.wait();
}

// Long enough for slow ranks.
constexpr double short_timeout = 4;

void hangs(Communicator& self) {
  all_reduce(self);
  self.set_timeout(short_timeout);
  if (self.rank() == 1) pause_for(600);
  self.barrier();
}

void stops(Communicator& self) {
  all_reduce(self);
  self.set_timeout(short_timeout);
  if (self.rank() == 1) raise(SIGSTOP);
  self.barrier();
}

void speaks(Communicator& self) {
  self.barrier();
  std::cout << "cout\n" << std::flush;
  std::printf("printf\n");
}

void many(Communicator& self) {
  Tensor values = zeros({100});
  const auto start = std::chrono::steady_clock::now();
  for (int turn = 0; turn < 500; ++turn) self.all_reduce(values, Reduction::mean);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (self.rank() == 0)
    say("an all_reduce of 100 floats takes " + std::to_string(taken.count() / 500 * 1e6) + " us");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(Communicator&)>> scenarios = {
      {"collectives", collectives},
      {"crashes", crashes},
      {"dies", dies},
      {"dies_at_once", dies_at_once},
      {"dies_before", all_reduce},
      {"dies_in_a_transfer", dies_in_a_transfer},
      {"exits", exits},
      {"first_dies", first_dies},
      {"hangs", hangs},
      {"leaves", leaves},
      {"lets_an_error_go", lets_an_error_go},
      {"many", many},
      {"shares_cores", shares_cores},
      {"speaks", speaks},
      {"marks", marks},
      {"mismatch", mismatch},
      {"nested_collectives", nested_collectives},
      {"nested_dies", nested_dies},
      {"nested_throws", nested_throws},
      {"queue", queue},
      {"needs_too_much", needs_too_much},
      {"other_dtype", other_dtype},
      {"other_order", other_order},
      {"other_shape", other_shape},
      {"quits", quits},
      {"skips", skips},
      {"stops", stops},
      {"throws", throws},
      {"weights", weights}};
  if (argc != 2 || !scenarios.contains(argv[1])) return 2;
  std::shared_ptr<Communicator> world;
  try {
    if (argv[1] == std::string("dies_before")) {
      setenv("ESPALIER_COLLECTIVE_TIMEOUT", "4", 1);
      if (distributed::rank() == 1) raise(SIGKILL);
    }
    world = distributed::world();
    scenarios.at(argv[1])(*world);
    say("done");
    return 0;
  } catch (const CommunicatorError& error) {
    say(error.what());
  } catch (const std::exception& error) {
    say(std::string("own: ") + error.what());
    if (world) world->abort(std::current_exception());
    pause_for(1);  // so that other ranks can print before mpirun ends them
  }
  return 1;
}
