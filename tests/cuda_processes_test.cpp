// A job of processes with a GPU each, which send gradients through NCCL. Threads stand in for processes, and
// the devices are emulated.
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <exception>
#include <thread>

#include "emulated/process_threads.h"
#include "emulated_cuda.h"
#include "espalier/executor/communicators/groups.h"
#include "gpu_testing.h"
#include "replica_programs.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

constexpr int processes = 2;

struct Library {
  Library() { setenv("ESPALIER_NCCL_LIBRARY", EMULATED_NCCL, 1); }
};
const Library library;

/// The last GPUs are those of the processes.
Device gpu_of(int rank) {
  const std::vector<Device> all = all_gpus();
  return all.at(all.size() - processes + static_cast<size_t>(rank));
}

/// A precondition of cases with a GPU of no process.
boost::test_tools::assertion_result has_spare_gpu(boost::unit_test::test_unit_id) {
  return boost::test_tools::assertion_result(all_gpus().size() > processes);
}

/// Calls `f(rank)` in each process, and throws the first error.
template <class F>
void in_processes(F&& f) {
  const auto worlds = make_thread_group(processes);
  std::vector<std::exception_ptr> errors(processes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < processes; ++rank)
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      const ProcessScope process(worlds[at]);
      try {
        f(rank);
      } catch (...) {
        errors[at] = std::current_exception();
        worlds[at]->abort(errors[at]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<Trace> train_in_processes(const NetworkOptions& options) {
  std::vector<Trace> traces(processes);
  in_processes([&](int rank) {
    NetworkOptions own = options;
    own.devices = {gpu_of(rank)};
    traces[static_cast<size_t>(rank)] = train_network(own);
  });
  return traces;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_processes, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(they_train_as_one_device_however_kernels_are_launched) {
  for (const bool host_op : {false, true}) {
    const Trace one = train_network({.host_op = host_op});
    for (const int64_t bytes : {int64_t{64}, int64_t{1} << 22})
      for (const Launch launch : {Launch::graph, Launch::segments, Launch::stream})
        BOOST_TEST_CONTEXT("buckets of " << bytes << " bytes, launch " << int(launch) << ", host op "
                                         << host_op)
    for (const Trace& trace :
         train_in_processes({.launch = launch, .bucket_bytes = bytes, .host_op = host_op}))
      BOOST_TEST(difference_of(trace, one) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(micro_batches_and_sharded_states) {
  const Trace one = train_network({.host_op = true});
  for (const int parts : {1, 2})
    for (const bool shard : {false, true}) BOOST_TEST_CONTEXT(parts << " parts, sharded " << shard)
  for (const Trace& trace :
       train_in_processes({.accumulate = parts, .shard_states = shard, .bucket_bytes = 64, .host_op = true}))
    BOOST_TEST(difference_of(trace, one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(they_make_no_context_on_other_gpus, *boost::unit_test::precondition(has_spare_gpu)) {
  emulated::forget_contexts();
  (void)train_in_processes({});
  BOOST_TEST(!emulated::has_context(0));
  for (int rank = 0; rank < processes; ++rank) BOOST_TEST(emulated::has_context(gpu_of(rank).index));
}

BOOST_AUTO_TEST_SUITE_END()
