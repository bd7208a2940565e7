// Ranks with tensors on one GPU, or on several with peer access. Built with CUDA; runs nothing without a GPU.
#include "espalier/executor/communicators/cuda/communicator_devices.h"

#include <boost/test/unit_test.hpp>

#include "cuda_communicator_cases.h"
#include "espalier/executor/communicators/cuda/rank_kernels.h"
#include "espalier/executor/communicators/distributed.h"
#include "gpu_testing.h"
#include "testing.h"
#ifdef ESPALIER_EMULATED_CUDA
#include "emulated_cuda.h"
#endif

using namespace espalier;
using namespace espalier::testing;

namespace {

std::vector<std::string> run_ranks(const std::vector<Device>& devices, const RankProgram& program) {
  return espalier::testing::run_ranks(make_device_group(devices), devices, program);
}

std::vector<Device> on_one(int ranks) { return std::vector<Device>(static_cast<size_t>(ranks), gpu()); }

bool two_with_peer_access() {
  int there = 0, back = 0;
  if (all_gpus().size() < 2) return false;
  cu::check(cudaDeviceCanAccessPeer(&there, 0, 1), "asking");
  cu::check(cudaDeviceCanAccessPeer(&back, 1, 0), "asking");
  return there && back;
}

/// Every collective on these devices, with tensors at equal or different offsets.
void check_all(const std::vector<Device>& devices, bool other_offsets) {
  for (const DType dtype : {float32, float64, int32, int64, float16, bfloat16})
    for (const int64_t elements : {0, 1, 7, 64, 4099}) {
      std::vector<std::string> wrong(devices.size());
      const auto errors = run_ranks(devices, [&](Communicator& self, Device device, cu::Stream&) {
        Moved moved(self, device, other_offsets ? self.rank() % 3 : elements % 2);
        wrong[static_cast<size_t>(self.rank())] = check_collectives(moved, elements, dtype);
      });
      for (const std::string& error : errors) BOOST_TEST(error == "");
      for (const std::string& text : wrong) BOOST_TEST(text == "");
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_communicator, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(ranks_on_one_gpu_agree_with_plain_loops) {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool other_offsets : {false, true}) check_all(on_one(ranks), other_offsets);
}

BOOST_AUTO_TEST_CASE(ranks_on_two_gpus_agree_with_plain_loops) {
  if (!two_with_peer_access()) return;
  check_all({gpu(0), gpu(1)}, false);
  check_all({gpu(1), gpu(0), gpu(0), gpu(1)}, true);
}

BOOST_AUTO_TEST_CASE(long_tensors) {
  for (const int ranks : {2, 5}) {
    const Tensor expected = reduced(ranks, 300'001, float32, Reduction::mean);
    std::atomic<int> same = 0;
    const auto errors = run_ranks(on_one(ranks), [&](Communicator& self, Device device, cu::Stream&) {
      Tensor values = values_of(self.rank(), 300'001, float32).to(device);
      self.all_reduce(values, Reduction::mean);
      same += same_bits(values.to(cpu()), expected);
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    BOOST_TEST(same == ranks);
  }
}

BOOST_AUTO_TEST_CASE(bools_are_moved_but_not_reduced) {
  const auto errors = run_ranks(on_one(2), [](Communicator& self, Device device, cu::Stream&) {
    Tensor values = tensor({self.rank() == 1, true, true}).to(device), all({6}, boolean, device);
    self.broadcast(values, 1);
    self.all_gather(values, all);
    const Tensor there = all.to(cpu());
    for (const bool value : there.span<bool>())
      if (!value) throw Error("a bool was lost");
    self.all_reduce(values);
  });
  for (const std::string& error : errors) BOOST_TEST(contains(error, "bools cannot be reduced"));
}

BOOST_AUTO_TEST_CASE(nan_goes_through_all_reductions) {
  const auto errors = run_ranks(on_one(3), [](Communicator& self, Device device, cu::Stream&) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min}) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      Tensor values = tensor({self.rank() == 0 ? nan : 1.0f, self.rank() == 2 ? nan : 1.0f, 1.0f}).to(device);
      self.all_reduce(values, reduction);
      const Tensor there = values.to(cpu());
      if (!std::isnan(there.at<float>({0})) || !std::isnan(there.at<float>({1}))) throw Error("NaN is lost");
      if (std::isnan(there.at<float>({2}))) throw Error("NaN from nowhere");
    }
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(weights_multiply_what_is_read_and_zero_reads_nothing) {
  for (const DType dtype : {float32, float64, bfloat16})
    for (const int64_t elements : {5, 1000}) {
      const std::vector<double> weights = {0.3, 0, 0.45, 0.25};
      std::vector<Tensor> there;
      std::vector<const void*> from;
      std::vector<void*> to;
      for (int rank = 0; rank < 4; ++rank) {
        const Tensor values =
            rank == 1 ? full({elements}, std::nan(""), dtype) : values_of(rank, elements, dtype);
        there.push_back(values.to(gpu()));
        from.push_back(there.back().address());
        to.push_back(there.back().address());
      }
      RankReduction work;
      work.dtype = dtype;
      work.from = from;
      work.to = to;
      work.count = elements;
      work.weights = weights;
      cu::reduce_ranks(work);
      Tensor expected({elements}, dtype);
      visit_all(dtype, [&]<class T>(TypeTag<T>) {
        using C = compute_t<T>;
        if constexpr (std::is_floating_point_v<C>)
          for (int64_t i = 0; i < elements; ++i) {
            volatile C sum = 0;  // no fused multiply-add: product and sum are rounded
            for (const int rank : {0, 2, 3}) {
              volatile C product = static_cast<C>(weights[static_cast<size_t>(rank)]) *
                                   static_cast<C>(static_cast<T>(element_of(rank, i, dtype)));
              sum = rank == 0 ? product : sum + product;
            }
            expected.data<T>()[i] = static_cast<T>(static_cast<C>(sum));
          }
      });
      for (const Tensor& values : there) BOOST_TEST(same_bits(values.to(cpu()), expected));
      const std::vector<double> none(4, 0);
      work.weights = none;
      cu::reduce_ranks(work);
      for (const Tensor& values : there) BOOST_TEST(same_bits(values.to(cpu()), zeros({elements}, dtype)));
      cu::scale(there[0].address(), dtype, elements, 0.5);
    }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_timing) {
  std::vector<std::vector<Device>> groups = {on_one(4)};
  if (two_with_peer_access()) groups.push_back({gpu(0), gpu(1), gpu(0), gpu(1)});
  for (const auto& devices : groups) {
    const Tensor expected = reduced(4, 777, float32, Reduction::sum);
    std::atomic<int> same = 0;
    const auto errors = run_ranks(devices, [&](Communicator& self, Device device, cu::Stream&) {
      std::minstd_rand random(static_cast<unsigned>(self.rank() + 1));
      const Tensor source = values_of(self.rank(), 777, float32).to(device);
      Tensor values({777}, float32, device), all({4, 777}, float32, device);
      for (int turn = 0; turn < 100; ++turn) {
        copy_elements(source, values);  // in the stream, behind the reads of other ranks
        random_delay(random);
        self.all_reduce(values);
        random_delay(random);
        self.all_gather(values, all);
        if (turn % 10 == 9)
          same += same_bits(all.slice(0, turn % 4, turn % 4 + 1).to(cpu()).reshape({777}), expected);
      }
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
    BOOST_TEST(same == 4 * 10);
  }
}

BOOST_AUTO_TEST_CASE(ranks_may_share_the_eager_stream) {
  const auto group = make_device_group(on_one(3));
  std::atomic<int> same = 0;
  std::vector<std::thread> threads;
  for (const auto& self : group)
    threads.emplace_back([&, self] {
      Tensor values = values_of(self->rank(), 100, float32).to(gpu());
      for (int turn = 0; turn < 10; ++turn) self->all_reduce(values, turn ? Reduction::max : Reduction::sum);
      same += same_bits(values.to(cpu()), reduced(3, 100, float32, Reduction::sum));
      self->barrier();
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(same == 3);
}

BOOST_AUTO_TEST_CASE(what_else_a_rank_can_call_is_an_error_on_all) {
  const unsigned line = __LINE__ + 6;
  auto errors = run_ranks(on_one(3), [](Communicator& self, Device device, cu::Stream&) {
    Tensor values = zeros({100, 10}).to(device), bias = zeros({10}).to(device);
    if (self.rank() == 2)
      self.broadcast(bias, 0);
    else
      self.all_reduce(values);
  });
  const std::string here = "cuda_communicator_test.cpp:" + std::to_string(line) + ")";
  for (const size_t rank : {0, 1}) {
    BOOST_TEST(contains(errors[rank], "all_reduce of float32 [100, 10] ("));
    BOOST_TEST(contains(errors[rank], here + ": rank 2 called broadcast of float32 [10] from rank 0 ("));
  }
  BOOST_TEST(contains(errors[2], ": rank 0 called all_reduce of float32 [100, 10] ("));

  errors = run_ranks(on_one(2), [](Communicator& self, Device device, cu::Stream&) {
    Tensor values = zeros({4}).to(self.rank() == 0 ? device : cpu());
    self.all_reduce(values);
  });
  BOOST_TEST(contains(errors[1], "own: all_reduce of float32 [4] ("));
  BOOST_TEST(contains(errors[1], "does not reach cpu:0"));
  BOOST_TEST(contains(errors[0], "rank 1 failed: all_reduce of float32 [4] ("));
}

BOOST_AUTO_TEST_CASE(a_tensor_on_another_gpu_is_refused) {
  if (!two_with_peer_access()) return;
  const auto errors = run_ranks({gpu(0), gpu(1)}, [](Communicator& self, Device, cu::Stream&) {
    Tensor values = zeros({4}).to(gpu(0));
    self.all_reduce(values);
  });
  BOOST_TEST(contains(errors[1], "rank 1 of this communicator is on cuda:1, and the tensor on cuda:0"));
  BOOST_TEST(contains(errors[0], "rank 1 failed: "));
}

BOOST_AUTO_TEST_CASE(ranks_that_fail_leave_or_do_not_come_are_named) {
  auto errors = run_ranks(on_one(3), [](Communicator& self, Device device, cu::Stream&) {
    Tensor values = zeros({8}).to(device);
    self.all_reduce(values);
    if (self.rank() == 1) throw OutOfMemory("no memory for the 7th step");
    self.all_reduce(values);
  });
  BOOST_TEST(errors[1] == "own: no memory for the 7th step");
  for (const size_t rank : {0, 2})
    BOOST_TEST(errors[rank].ends_with("): rank 1 failed: no memory for the 7th step"));

  errors = run_ranks(on_one(2), [](Communicator& self, Device device, cu::Stream&) {
    Tensor values = zeros({8}).to(device);
    self.all_reduce(values);
    self.set_timeout(0.2);
    if (self.rank() == 0) self.broadcast(values, 0);
  });
  BOOST_TEST(contains(errors[0], "broadcast of float32 [8] from rank 0 ("));
  BOOST_TEST(contains(errors[0], "rank 1 has not come within 0.2 s, after all_reduce of float32 [8] ("));

  Group group = make_device_group(on_one(2));
  std::thread leaves([other = std::move(group[1])]() mutable {
    other->barrier();
    other.reset();
  });
  group[0]->barrier();
  leaves.join();
  BOOST_CHECK_EXCEPTION(group[0]->barrier(), CommunicatorError, says({"rank 1 has left"}));
}

BOOST_AUTO_TEST_CASE(a_captured_stream_has_no_host_to_meet_on) {
  const auto errors = run_ranks(on_one(2), [](Communicator& self, Device device, cu::Stream& stream) {
    Tensor values = zeros({8}).to(device);
    self.all_reduce(values);
    if (self.rank() == 0) return self.all_reduce(values);
    cu::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing");
    const auto end = [&] {
      cudaGraph_t graph = nullptr;
      cu::check(cudaStreamEndCapture(stream.get(), &graph), "capturing");
      cu::check(cudaGraphDestroy(graph), "letting go of a graph");
    };
    try {
      self.all_reduce(values);
    } catch (...) {
      end();
      throw;
    }
    end();
  });
  BOOST_TEST(contains(errors[1], "which a CUDA graph does not have"));
  BOOST_TEST(contains(errors[0], "rank 1 failed: all_reduce of float32 [8] ("));
}

BOOST_AUTO_TEST_CASE(groups_that_cannot_be) {
  BOOST_CHECK_THROW(make_device_group({}), Error);
  BOOST_CHECK_EXCEPTION(make_device_group({gpu(), cpu()}), DeviceError, says({"cpu:0 is no GPU"}));
  BOOST_CHECK_THROW(make_device_group({gpu(), gpu(63)}), DeviceError);
  BOOST_CHECK_EXCEPTION(make_device_group(on_one(65)), UnsupportedError,
                        says({"65 ranks, and there can be 64"}));
  // NCCL does not support two ranks on one GPU, so make_group chooses this group.
  const Group group = distributed::make_group(on_one(2));
  for (int rank = 0; rank < 2; ++rank) {
    BOOST_TEST(group[static_cast<size_t>(rank)]->rank() == rank);
    BOOST_TEST(group[static_cast<size_t>(rank)]->size() == 2);
  }
}

#ifdef ESPALIER_EMULATED_CUDA
BOOST_AUTO_TEST_CASE(the_host_waits_for_no_device) {
  std::atomic<uint64_t> waits = 0;
  const auto errors = run_ranks(on_one(2), [&](Communicator& self, Device device, cu::Stream&) {
    Tensor values = values_of(self.rank(), 100, float32).to(device);
    self.barrier();
    const uint64_t before = emulated::counters().synchronizations;
    self.barrier();  // both ranks have read the counter
    for (int turn = 0; turn < 20; ++turn) self.all_reduce(values);
    waits += emulated::counters().synchronizations - before;
    self.barrier();
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
  BOOST_TEST(waits == 0);
}

BOOST_AUTO_TEST_CASE(a_launch_that_fails_is_an_error_on_all) {
  for (const char* function : {"cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventRecord"}) {
    const auto errors = run_ranks(on_one(3), [&](Communicator& self, Device device, cu::Stream& stream) {
      Tensor values = zeros({8}).to(device);
      self.all_reduce(values);
      stream.synchronize();
      self.barrier();
      if (self.rank() == 0) emulated::fail_next(function, 2);
      self.barrier();
      self.all_reduce(values);
      self.all_reduce(values);
    });
    int own = 0;
    for (const std::string& error : errors) {
      own += error.starts_with("own: ");
      BOOST_TEST(error != "", function);
      BOOST_TEST((error.starts_with("own: ") || contains(error, " failed: ")));
    }
    BOOST_TEST(own == 1);
    emulated::cancel_failures();
  }
}

BOOST_AUTO_TEST_CASE(gpus_that_do_not_reach_each_other_need_nccl) {
  setenv("ESPALIER_EMULATED_PEERS", "0", 1);
  emulated::reset();
  BOOST_CHECK_EXCEPTION(make_device_group({gpu(0), gpu(1)}), UnsupportedError,
                        says({"cuda:0 does not reach the memory of cuda:1", "need NCCL"}));
  BOOST_CHECK_NO_THROW(make_device_group(on_one(2)));
  unsetenv("ESPALIER_EMULATED_PEERS");
  emulated::reset();
}

BOOST_AUTO_TEST_CASE(gpus_that_reach_too_many_others_need_nccl) {
  emulated::fail_next("cudaDeviceEnablePeerAccess", 1, cudaErrorTooManyPeers);
  BOOST_CHECK_EXCEPTION(make_device_group({gpu(0), gpu(1)}), UnsupportedError,
                        says({"cuda:0 reaches as many devices as it can, and not cuda:1", "need NCCL"}));
  BOOST_CHECK_NO_THROW(make_device_group({gpu(0), gpu(1)}));
}
#endif

BOOST_AUTO_TEST_SUITE_END()
