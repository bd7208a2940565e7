// Ranks connected by NCCL on all GPUs of the machine, or by the emulated NCCL. Built with NCCL.
#include <boost/test/unit_test.hpp>

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "cuda_communicator_cases.h"
#include "espalier/executor/communicators/nccl/communicator_nccl.h"
#include "espalier/executor/communicators/nccl/nccl_ranks.h"
#include "gpu_testing.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

#ifdef EMULATED_NCCL
/// The emulated NCCL, with two GPUs.
struct Library {
  Library() { setenv("ESPALIER_NCCL_LIBRARY", EMULATED_NCCL, 1); }
};
const Library library;

template <class F>
F* in_emulated_nccl(const char* name) {
  (void)cu::nccl();
  return reinterpret_cast<F*>(dlsym(dlopen(EMULATED_NCCL, RTLD_NOW | RTLD_NOLOAD), name));
}
#endif

std::vector<Device> devices() {
  std::vector<Device> all = all_gpus();
  if (all.size() > 2) all.resize(2);
  return all;
}

int ranks() { return static_cast<int>(devices().size()); }

/// A process for each device, with threads in place of processes.
std::vector<std::string> run_processes(const RankProgram& program) {
  const Group bootstraps = make_thread_group(ranks());
  const auto all = devices();
  return run_ranks(bootstraps, all, [&](Communicator& bootstrap, Device device, cu::Stream& stream) {
    const auto self = make_nccl_communicator(bootstraps[static_cast<size_t>(bootstrap.rank())], device);
    const auto finish = [&] { (void)cudaStreamSynchronize(stream.get()); };
    try {
      program(*self, device, stream);
    } catch (...) {
      finish();
      throw;
    }
    finish();
    self->barrier();
  });
}

std::vector<std::string> run_group(const RankProgram& program) {
  return run_ranks(make_nccl_group(devices()), devices(), program);
}

using Runner = std::vector<std::string> (*)(const RankProgram&);

cudaGraphExec_t capture(cu::Stream& stream, const std::function<void()>& work) {
  cu::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing");
  work();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cu::check(cudaStreamEndCapture(stream.get(), &graph), "capturing");
  cu::check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  cu::check(cudaGraphDestroy(graph), "letting go of a graph");
  return executable;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nccl_library)

#ifdef EMULATED_NCCL
BOOST_AUTO_TEST_CASE(libraries_that_cannot_be_used) {
  const char* before = std::getenv("ESPALIER_NCCL_LIBRARY");
  const std::string named = before ? before : "";
  setenv("ESPALIER_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  BOOST_CHECK_EXCEPTION(
      (void)cu::open_nccl(), UnsupportedError,
      says({"NCCL cannot be opened; ESPALIER_NCCL_LIBRARY names it", "/nowhere/libnccl.so.2"}));
  setenv("ESPALIER_NCCL_LIBRARY", "libm.so.6", 1);
  BOOST_CHECK_EXCEPTION((void)cu::open_nccl(), UnsupportedError,
                        says({"libm.so.6 is no NCCL", "it has no ncclGetVersion"}));
  setenv("ESPALIER_NCCL_LIBRARY", EMULATED_NCCL, 1);
  setenv("ESPALIER_EMULATED_NCCL_VERSION", "22105", 1);
  BOOST_CHECK_EXCEPTION((void)cu::open_nccl(), UnsupportedError,
                        says({"is NCCL 2.21.5, and Espalier was compiled for 2.28.3 or later"}));
  unsetenv("ESPALIER_EMULATED_NCCL_VERSION");
  before ? setenv("ESPALIER_NCCL_LIBRARY", named.c_str(), 1) : unsetenv("ESPALIER_NCCL_LIBRARY");
}
#endif

BOOST_AUTO_TEST_CASE(it_is_opened_and_no_older_than_its_header) {
  BOOST_TEST(cu::nccl_version() >= NCCL_VERSION_CODE);
#define CHECK_FUNCTION(name) BOOST_TEST((cu::nccl().name != nullptr), #name);
  ESPALIER_NCCL_FUNCTIONS(CHECK_FUNCTION)
  BOOST_TEST(cu::describe(ncclRemoteError) != cu::describe(ncclInvalidUsage));
  BOOST_CHECK_NO_THROW(cu::check(ncclInProgress, "something"));
  BOOST_CHECK_EXCEPTION(cu::check(ncclInvalidUsage, "something"), DeviceError,
                        says({"something failed (invalid usage"}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cuda_nccl, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(collectives_agree_with_plain_loops) {
  for (const Runner run : {run_group, run_processes})
    for (const DType dtype : {float32, float64, int32, int64, float16, bfloat16}) {
      std::vector<std::string> wrong(static_cast<size_t>(ranks()));
      const auto errors = run([&](Communicator& self, Device device, cu::Stream&) {
        for (const int64_t elements : {0, 1, 4099}) {
          Moved moved(self, device, elements % 2);
          // NCCL adds 16-bit reals in 16 bits, in an unspecified order.
          wrong[static_cast<size_t>(self.rank())] += check_collectives(moved, elements, dtype, 1, 0.5);
        }
      });
      for (const std::string& error : errors) BOOST_TEST(error == "");
      for (const std::string& text : wrong) BOOST_TEST(text == "");
    }
}

BOOST_AUTO_TEST_CASE(bools_are_moved) {
  const auto errors = run_group([](Communicator& self, Device device, cu::Stream&) {
    Tensor values = tensor({self.rank() == 0, true}).to(device);
    self.broadcast(values, 0);
    const Tensor there = values.to(cpu());
    for (const bool value : there.span<bool>())
      if (!value) throw Error("a bool was lost");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(collectives_are_captured) {
  for (const Runner run : {run_group, run_processes}) {
    const auto errors = run([](Communicator& self, Device device, cu::Stream& stream) {
      Tensor values = full({40}, self.rank() + 1).to(device), all({self.size(), 40}, float32, device);
      self.all_reduce(values);  // compares the calls, and loads all kernels
      self.all_gather(values, all);
      const Tensor source = full({40}, self.rank() + 1).to(device);
      copy_elements(source, values);
      const cudaGraphExec_t graph = capture(stream, [&] {
        self.all_reduce(values);
        self.all_gather(values, all);
      });
      double expected = self.size() * (self.size() + 1) / 2;
      for (int step = 0; step < 4; ++step, expected *= self.size()) {
        cu::check(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
        const Tensor there = all.to(cpu());
        for (const float value : there.span<float>())
          if (value != expected) throw Error("a step was computed wrongly");
      }
      cu::check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_AUTO_TEST_CASE(weights_multiply_what_a_rank_brings) {
  const auto all = devices();
  cu::NcclRanks group(all, 0, ranks(), cu::new_nccl_id(), 10, [](size_t, const std::string&) {});
  const double nan = std::nan("");
  std::vector<std::thread> threads;
  std::vector<double> first(all.size()), second(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank)
    threads.emplace_back([&, rank] {
      const cu::DeviceScope device(all[rank].index);
      const cu::Stream stream;
      const cu::StreamScope scope(stream.get());
      Collective call;
      call.name = "all_reduce_weighted";
      call.kind = Collective::Kind::reduce;
      call.spec = {float32, {5}};
      call.elements = 5;
      const auto enqueue = [&](Tensor& values, double weight) {
        auto* const address = static_cast<char*>(values.address());
        group[rank].enqueue(call, {&values, &values, address, address}, weight, 10);
      };
      Tensor values = full({5}, 4).to(all[rank]);
      enqueue(values, rank == 0 ? 0.25 : 0.5);
      first[rank] = values.to(cpu()).at<float>({4});
      Tensor others = full({5}, rank == 0 ? 3 : nan).to(all[rank]);
      enqueue(others, rank == 0 ? 1 : 0);
      second[rank] = others.to(cpu()).at<float>({4});
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    BOOST_TEST(first[rank] == (all.size() == 2 ? 3 : 1));
    BOOST_TEST(second[rank] == 3);
  }
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_gpu_are_refused) {
  BOOST_CHECK_EXCEPTION(make_nccl_group({gpu(), gpu()}), UnsupportedError,
                        says({"ranks 0 and 1 are both on cuda:0", "make_device_group"}));
  BOOST_CHECK_THROW(make_nccl_group({}), Error);
  BOOST_CHECK_THROW(make_nccl_group({cpu()}), DeviceError);
  const Group bootstraps = make_thread_group(2);
  const auto errors =
      run_ranks(bootstraps, {gpu(), gpu()}, [&](Communicator& bootstrap, Device device, cu::Stream&) {
        BOOST_CHECK_THROW(make_nccl_communicator(bootstraps[static_cast<size_t>(bootstrap.rank())], device),
                          UnsupportedError);
        bootstrap.barrier();  // the bootstrap can still be used
      });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(a_rank_that_cannot_begin_stops_the_others) {
  const Group bootstraps = make_thread_group(2);
  const auto errors =
      run_ranks(bootstraps, {gpu(), gpu()}, [&](Communicator& bootstrap, Device device, cu::Stream&) {
        (void)make_nccl_communicator(bootstraps[static_cast<size_t>(bootstrap.rank())],
                                     bootstrap.rank() == 1 ? cpu() : device);
      });
  BOOST_TEST(contains(errors[1], "cpu:0 is no GPU"));
  BOOST_TEST(contains(errors[0], "rank 1 failed: make_nccl_communicator: cpu:0 is no GPU"));
}

#ifdef EMULATED_NCCL
BOOST_AUTO_TEST_CASE(what_ranks_call_is_compared) {
  for (const Runner run : {run_group, run_processes}) {
    const unsigned line = __LINE__ + 6;
    const auto errors = run([](Communicator& self, Device device, cu::Stream&) {
      Tensor values = zeros({100, 10}).to(device), bias = zeros({10}).to(device);
      if (self.rank() == 1)
        self.broadcast(bias, 0);
      else
        self.all_reduce(values);
    });
    BOOST_TEST(contains(errors[0], "all_reduce of float32 [100, 10] ("));
    BOOST_TEST(
        contains(errors[0], "cuda_nccl_test.cpp:" + std::to_string(line) + "): rank 1 called broadcast of "));
    BOOST_TEST(contains(errors[1], ": rank 0 called all_reduce of float32 [100, 10] ("));
  }
}

BOOST_AUTO_TEST_CASE(processes_that_differ_in_known_calls_do_not_wait_forever) {
  const auto errors = run_processes([](Communicator& self, Device device, cu::Stream&) {
    Tensor one = zeros({8}).to(device), other = zeros({8}, int32).to(device);
    self.all_reduce(one);
    self.all_reduce(other);
    // The devices wait for each other.
    self.set_timeout(0.3);
    self.all_reduce(self.rank() == 0 ? one : other);
    self.barrier();
  });
  for (const std::string& error : errors)
    BOOST_TEST(contains(error, "has waited in a collective"), "an error that says so, and not: " << error);
}

BOOST_AUTO_TEST_CASE(a_device_that_waits_in_vain_is_freed) {
  for (const Runner run : {run_group, run_processes}) {
    const auto errors = run([](Communicator& self, Device device, cu::Stream& stream) {
      self.set_timeout(0.3);
      Tensor values = zeros({8}).to(device);
      self.all_reduce(values);
      const cudaGraphExec_t graph = capture(stream, [&] { self.all_reduce(values); });
      if (self.rank() == 0) {
        cu::check(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
        stream.synchronize();  // rank 1 does not launch
      }
      cu::check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
      if (self.rank() == 0) self.all_reduce(values);
      while (self.rank() == 1) {
        self.barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    BOOST_TEST(contains(errors[0], "all_reduce of float32 [8] ("));
    BOOST_TEST(errors[1] != "");
  }
}

BOOST_AUTO_TEST_CASE(an_error_on_one_rank_frees_devices_that_wait_for_it) {
  for (const Runner run : {run_group, run_processes}) {
    const auto errors = run([](Communicator& self, Device device, cu::Stream& stream) {
      self.set_timeout(3);
      Tensor values = zeros({8}).to(device);
      self.all_reduce(values);
      const cudaGraphExec_t graph = capture(stream, [&] { self.all_reduce(values); });
      if (self.rank() == 1) {
        self.abort(std::make_exception_ptr(OutOfMemory("no memory for the 7th step")));
        return self.barrier();
      }
      cu::check(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
      stream.synchronize();
      self.all_reduce(values);
    });
    for (const std::string& error : errors)
      BOOST_TEST(contains(error, "rank 1 failed: no memory for the 7th step"));
  }
}

BOOST_AUTO_TEST_CASE(what_nccl_finds_out_reaches_all) {
  const auto set_error = in_emulated_nccl<decltype(emulatedNcclSetError)>("emulatedNcclSetError");
  for (const Runner run : {run_group, run_processes}) {
    const auto errors = run([&](Communicator& self, Device device, cu::Stream&) {
      Tensor values = zeros({8}).to(device);
      self.all_reduce(values);
      self.barrier();
      set_error(ncclRemoteError);
      for (;;) self.barrier();
    });
    set_error(ncclSuccess);
    for (const std::string& error : errors) {
      BOOST_TEST(contains(error, "barrier ("));
      BOOST_TEST(contains(error, " failed: NCCL failed on cuda:"), error);
      BOOST_TEST(contains(error, "after all_reduce of float32 [8] ("));
      BOOST_TEST(contains(error, "remote process exited"));
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_come_are_named) {
  auto errors = run_group([](Communicator& self, Device device, cu::Stream&) {
    Tensor values = zeros({8}).to(device);
    self.all_reduce(values);
    self.set_timeout(0.2);
    if (self.rank() == 0) self.broadcast(values, 0);
  });
  BOOST_TEST(contains(errors[0], "rank 1 has not come within 0.2 s, after all_reduce of float32 [8] ("));

  // One rank does not start; the errors of the other ranks name it.
  const Group bootstraps = make_thread_group(2);
  errors = run_ranks(bootstraps, devices(), [&](Communicator& bootstrap, Device device, cu::Stream&) {
    bootstrap.set_timeout(0.2);
    if (bootstrap.rank() == 0) (void)make_nccl_communicator(bootstraps[0], device);
  });
  BOOST_TEST(contains(errors[0], "rank 1 has not come within 0.2 s, and to no other before"));
}

BOOST_AUTO_TEST_CASE(nothing_of_nccl_stays) {
  int live = -1, aborted = -1, destroyed = -1;
  const auto count = in_emulated_nccl<decltype(emulatedNcclCount)>("emulatedNcclCount");
  count(&live, &aborted, &destroyed);
  BOOST_TEST(live == 0);
  const int before = destroyed;
  const auto errors = run_group([](Communicator& self, Device, cu::Stream&) { self.barrier(); });
  for (const std::string& error : errors) BOOST_TEST(error == "");
  count(&live, &aborted, &destroyed);
  BOOST_TEST(live == 0);
  BOOST_TEST(destroyed == before + 2);
}

// A rank that stays in the communicator does not keep the others in its destructor.
BOOST_AUTO_TEST_CASE(leaving_has_the_timeout_of_the_communicator) {
  const auto count = in_emulated_nccl<decltype(emulatedNcclCount)>("emulatedNcclCount");
  int live = -1, aborted = -1, destroyed = -1;
  count(&live, &aborted, &destroyed);
  const ncclUniqueId id = cu::new_nccl_id();
  const auto ignore = [](size_t, const std::string&) {};
  constexpr double timeout = 0.2;
  std::optional<cu::NcclRanks> first, second;
  std::thread other([&] { second.emplace(std::vector<Device>{gpu(1)}, 1, 2, id, timeout, ignore); });
  first.emplace(std::vector<Device>{gpu(0)}, 0, 2, id, timeout, ignore);
  other.join();
  const int aborted_before = aborted, destroyed_before = destroyed;
  first.reset();  // the other one does not leave yet
  count(&live, &aborted, &destroyed);
  BOOST_TEST(aborted == aborted_before + 1);
  second.reset();
  count(&live, &aborted, &destroyed);
  BOOST_TEST(live == 0);
  BOOST_TEST(aborted + destroyed == aborted_before + destroyed_before + 2);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
