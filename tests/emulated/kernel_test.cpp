// Kernels: threads, barriers, warps, shared memory, and the errors that the emulator detects.
#include <cstdlib>
#include <numeric>

#include "device_buffer.h"

namespace {

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) c[i] = a[i] + b[i];
}

template <class T>
__global__ void __launch_bounds__(256) sum_blocks(const T* x, int n, T* sums) {
  __shared__ T of_warp[32];
  const unsigned thread = threadIdx.x;
  T value = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + thread); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x))
    value += x[i];
  for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) value += __shfl_down_sync(0xffffffffu, value, lanes);
  if (thread % 32 == 0) of_warp[thread / 32] = value;
  __syncthreads();
  if (thread < 32) {
    value = thread < blockDim.x / 32 ? of_warp[thread] : T(0);
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    if (thread == 0) sums[blockIdx.x] = value;
  }
}

__global__ void reverse(float* x) {
  auto* shared = static_cast<float*>(espalier_emulated_shared());
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void unset_shared(unsigned* x) { *x = *static_cast<unsigned*>(espalier_emulated_shared()); }

__global__ void beyond_shared() { static_cast<char*>(espalier_emulated_shared())[100] = 1; }

__global__ void half_leaves(int* x) {
  __shared__ int values[64];
  if (threadIdx.x % 2 == 1) return;
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  x[threadIdx.x] = values[62 - threadIdx.x];
}

__global__ void without_barrier(int* x) {
  __shared__ int values[64];
  values[threadIdx.x] = -1;
  __syncthreads();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  x[threadIdx.x] = values[(threadIdx.x + 1) % 64];  // a race
}

__global__ void deadlock() {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void warp_barrier_mix() {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __syncwarp();
}

__global__ void outside_mask() { __shfl_sync(0x1u, 1, 0); }

/// The blocks pass a number on, each to the next one, `rounds` times; each keeps how often it has had it.
__global__ void pass_on(unsigned* turn, unsigned* had, unsigned rounds) {
  auto* own = static_cast<unsigned*>(espalier_emulated_shared());
  if (threadIdx.x == 0) *own = 0;
  for (unsigned i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0)
      while (*static_cast<volatile unsigned*>(turn) != i * gridDim.x + blockIdx.x) __nanosleep(20);
    __syncthreads();
    if (threadIdx.x == 5) ++*own;
    __syncthreads();
    if (threadIdx.x == 0) ++*turn;
  }
  __syncthreads();
  if (threadIdx.x == 0) had[blockIdx.x] = *own;
}

__global__ void trap() { __trap(); }

/// What a copy's target holds before and after it is awaited, and what a copy of nothing leaves.
__global__ void copies_beside(const unsigned* from, unsigned* before, unsigned* after, unsigned* empty) {
  __shared__ __align__(16) unsigned values[64][4];
  const unsigned i = threadIdx.x;
  for (unsigned k = 0; k < 4; ++k) values[i][k] = 5;
  emulated::copy_async(values[i], from + 4 * i, 16, i % 2 == 0 ? 16 : 0);
  before[i] = values[i][1];
  emulated::await_copies();
  __syncthreads();
  after[i] = values[i ^ 2][1];
  empty[i] = values[i ^ 1][1];
}
__global__ void copies_from_odd_addresses(const unsigned* from) {
  __shared__ __align__(16) unsigned values[4];
  emulated::copy_async(values, from + 1, 16, 16);
  emulated::await_copies();
}
__global__ void copies_not_awaited(const unsigned* from) {
  __shared__ __align__(16) unsigned values[4];
  emulated::copy_async(values, from, 16, 16);
}

__global__ void shuffles(int* up, int* down, int* across, int* from, unsigned* ballots, long long* wide) {
  const auto lane = static_cast<int>(threadIdx.x);
  up[lane] = __shfl_up_sync(0xffffffffu, lane, 3, 8);
  down[lane] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
  across[lane] = __shfl_xor_sync(0xffffffffu, lane, 5, 8);
  from[lane] = __shfl_sync(0xffffffffu, lane, 2, 16);
  ballots[lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  wide[lane] = __shfl_xor_sync(0xffffffffu, (1ll << 40) + lane, 1);
}

__global__ void halves_of_warps(int* x) {
  // Two halves in different branches, each with its own mask.
  if (threadIdx.x % 32 < 16)
    x[threadIdx.x] = __reduce_add_sync(0x0000ffffu, 1);
  else
    x[threadIdx.x] = __reduce_min_sync(0xffff0000u, -static_cast<int>(threadIdx.x));
}

__global__ void read_ended_lane(int* x) {
  if (threadIdx.x >= 16) return;
  x[threadIdx.x] = __shfl_sync(0xffffffffu, 7, 20);
}

__global__ void counts(int* x) {
  const int odd = __syncthreads_count(threadIdx.x % 2 == 1);
  const int any = __syncthreads_or(threadIdx.x == 5), all = __syncthreads_and(threadIdx.x < 5);
  if (threadIdx.x == 0) x[0] = odd, x[1] = any, x[2] = all;
}

__global__ void atomics(int* count, float* sum, unsigned* top, unsigned long long* swapped) {
  atomicAdd(count, 1);
  atomicAdd(sum, 0.5f);
  atomicMax(top, threadIdx.x);
  atomicCAS(swapped, static_cast<unsigned long long>(threadIdx.x),
            static_cast<unsigned long long>(threadIdx.x) + 1);
}

__global__ void indices(uint3* threads, uint3* blocks) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  threads[i] = threadIdx;
  blocks[i] = blockIdx;
}

__global__ void write_one(float* x, size_t i) { x[i] = 1; }

}  // namespace

BOOST_FIXTURE_TEST_SUITE(emulated_kernels, Fresh)

BOOST_AUTO_TEST_CASE(adds_vectors) {
  const int n = 1000;
  std::vector<float> a(n), b(n);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 0.5f);
  const DeviceBuffer<float> da(a), db(b), dc(static_cast<size_t>(n));
  BOOST_TEST(run(add, 8, 128, nullptr, 0, da.data(), db.data(), dc.data(), n) == cudaSuccess);
  const auto c = dc.values();
  for (size_t i = 0; i < c.size(); ++i) BOOST_REQUIRE_EQUAL(c[i], a[i] + b[i]);
}

BOOST_AUTO_TEST_CASE(reduces_with_shuffles_and_shared_memory) {
  std::vector<double> x(5000);
  std::iota(x.begin(), x.end(), 1.0);
  const DeviceBuffer<double> dx(x), sums(3);
  BOOST_TEST(run(sum_blocks<double>, 3, 256, nullptr, 0, dx.data(), 5000, sums.data()) == cudaSuccess);
  const auto s = sums.values();
  BOOST_TEST(s[0] + s[1] + s[2] == 5000.0 * 5001.0 / 2);
}

BOOST_AUTO_TEST_CASE(gives_dynamic_shared_memory) {
  std::vector<float> x(200);
  std::iota(x.begin(), x.end(), 0.0f);
  const DeviceBuffer<float> dx(x);
  BOOST_TEST(run(reverse, 1, 200, nullptr, 800, dx.data()) == cudaSuccess);
  std::reverse(x.begin(), x.end());
  BOOST_TEST(dx.values() == x, boost::test_tools::per_element());

  const DeviceBuffer<unsigned> unset(1);
  BOOST_TEST(run(unset_shared, 1, 1, nullptr, 4, unset.data()) == cudaSuccess);
  BOOST_TEST(unset.values()[0] == 0xCBCBCBCBu);

  BOOST_TEST(run(beyond_shared, 1, 1, nullptr, 100) == cudaSuccess);
  BOOST_TEST(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
}

BOOST_AUTO_TEST_CASE(indexes_in_three_dimensions) {
  const dim3 grid(2, 3, 2), block(4, 2, 3);
  const DeviceBuffer<uint3> threads(288), blocks(288);
  BOOST_TEST(run(indices, grid, block, nullptr, 0, threads.data(), blocks.data()) == cudaSuccess);
  const auto t = threads.values(), b = blocks.values();
  size_t i = 0;
  for (unsigned bz = 0; bz < 2; ++bz)
    for (unsigned by = 0; by < 3; ++by)
      for (unsigned bx = 0; bx < 2; ++bx)
        for (unsigned tz = 0; tz < 3; ++tz)
          for (unsigned ty = 0; ty < 2; ++ty)
            for (unsigned tx = 0; tx < 4; ++tx, ++i) {
              BOOST_REQUIRE(t[i].x == tx && t[i].y == ty && t[i].z == tz);
              BOOST_REQUIRE(b[i].x == bx && b[i].y == by && b[i].z == bz);
            }
}

BOOST_AUTO_TEST_CASE(barriers_count_threads_which_are_left) {
  const DeviceBuffer<int> x(std::vector<int>(64, -1));
  BOOST_TEST(run(half_leaves, 1, 64, nullptr, 0, x.data()) == cudaSuccess);
  const auto values = x.values();
  for (int i = 0; i < 64; ++i) BOOST_TEST(values[static_cast<size_t>(i)] == (i % 2 == 0 ? 62 - i : -1));
  const DeviceBuffer<int> c(3);
  BOOST_TEST(run(counts, 1, 100, nullptr, 0, c.data()) == cudaSuccess);
  BOOST_TEST(c.values() == (std::vector<int>{50, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_missing_barrier_shows) {
  const DeviceBuffer<int> x(64);
  BOOST_TEST(run(without_barrier, 1, 64, nullptr, 0, x.data()) == cudaSuccess);
  const auto values = x.values();
  BOOST_TEST(std::count(values.begin(), values.end(), -1) > 30);
}

BOOST_AUTO_TEST_CASE(shuffles_and_votes) {
  const DeviceBuffer<int> up(32), down(32), across(32), from(32);
  const DeviceBuffer<unsigned> ballots(32);
  const DeviceBuffer<long long> wide(32);
  BOOST_TEST(run(shuffles, 1, 32, nullptr, 0, up.data(), down.data(), across.data(), from.data(),
                 ballots.data(), wide.data()) == cudaSuccess);
  const auto u = up.values(), d = down.values(), a = across.values(), f = from.values();
  const auto w = wide.values();
  for (int lane = 0; lane < 32; ++lane) {
    const auto i = static_cast<size_t>(lane);
    BOOST_TEST(u[i] == (lane % 8 >= 3 ? lane - 3 : lane));
    BOOST_TEST(d[i] == (lane % 8 < 5 ? lane + 3 : lane));
    BOOST_TEST(a[i] == (lane ^ 5));
    BOOST_TEST(f[i] == lane / 16 * 16 + 2);
    BOOST_TEST(w[i] == (1ll << 40) + (lane ^ 1));
  }
  for (const unsigned ballot : ballots.values()) BOOST_TEST(ballot == 0x49249249u);

  const DeviceBuffer<int> halves(64);
  BOOST_TEST(run(halves_of_warps, 1, 64, nullptr, 0, halves.data()) == cudaSuccess);
  const auto h = halves.values();
  BOOST_TEST(h[3] == 16);
  BOOST_TEST(h[20] == -31);
  BOOST_TEST(h[63] == -63);

  const DeviceBuffer<unsigned> ended(16);
  BOOST_TEST(run(read_ended_lane, 1, 32, nullptr, 0, reinterpret_cast<int*>(ended.data())) == cudaSuccess);
  BOOST_TEST(ended.values()[0] == 0xCBCBCBCBu);
}

BOOST_AUTO_TEST_CASE(atomics_add_up) {
  const DeviceBuffer<int> count(std::vector<int>{0});
  const DeviceBuffer<float> sum(std::vector<float>{0});
  const DeviceBuffer<unsigned> top(std::vector<unsigned>{0});
  const DeviceBuffer<unsigned long long> swapped(std::vector<unsigned long long>{0});
  BOOST_TEST(run(atomics, 4, 100, nullptr, 0, count.data(), sum.data(), top.data(), swapped.data()) ==
             cudaSuccess);
  BOOST_TEST(count.values()[0] == 400);
  BOOST_TEST(sum.values()[0] == 200.0f);
  BOOST_TEST(top.values()[0] == 99u);
  BOOST_TEST(swapped.values()[0] == 100u);
}

BOOST_AUTO_TEST_CASE(blocks_of_cooperative_launches_wait_for_each_other) {
  for (const bool reversed : {false, true}) {
    if (reversed) setenv("ESPALIER_EMULATED_REVERSE", "1", 1);
    emulated::reset();
    const DeviceBuffer<unsigned> turn(std::vector<unsigned>{0}), had(6);
    BOOST_TEST(run_cooperative(pass_on, 6, 70, 4, turn.data(), had.data(), 9u) == cudaSuccess);
    BOOST_TEST(turn.values()[0] == 54u);
    BOOST_TEST(had.values() == std::vector<unsigned>(6, 9u));
  }
  unsetenv("ESPALIER_EMULATED_REVERSE");
  emulated::reset();
  const DeviceBuffer<unsigned> turn(std::vector<unsigned>{1}), had(1000);
  BOOST_TEST(run_cooperative(pass_on, 1000, 1024, 4, turn.data(), had.data(), 1u) ==
             cudaErrorCooperativeLaunchTooLarge);
  BOOST_TEST(run(pass_on, 2, 70, nullptr, 4, turn.data(), had.data(), 1u) == cudaSuccess);
  BOOST_TEST(cudaDeviceSynchronize() == cudaErrorLaunchFailure);  // blocks wait that run one after another
}

BOOST_AUTO_TEST_CASE(misuse_is_found_and_stays) {
  for (auto* kernel : {deadlock, warp_barrier_mix, outside_mask, trap}) {
    emulated::reset();
    BOOST_TEST(run(kernel, 1, 64, nullptr, 0) == cudaSuccess);
    BOOST_TEST(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    BOOST_TEST(!emulated::last_complaint().empty());
    void* memory = nullptr;
    BOOST_TEST(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
    BOOST_TEST(cudaGetLastError() == cudaErrorLaunchFailure);
    BOOST_TEST(cudaGetLastError() == cudaErrorLaunchFailure);
    BOOST_TEST(run(kernel, 1, 64, nullptr, 0) == cudaErrorLaunchFailure);
  }
  emulated::reset();
  // Fibers can be reused after an error.
  const DeviceBuffer<int> x(std::vector<int>(64, -1));
  BOOST_TEST(run(half_leaves, 1, 64, nullptr, 0, x.data()) == cudaSuccess);
  BOOST_TEST(x.values()[0] == 62);
}

BOOST_AUTO_TEST_CASE(copies_to_shared_memory_arrive_when_they_are_awaited) {
  std::vector<unsigned> numbers(4 * 64);
  std::iota(numbers.begin(), numbers.end(), 100u);
  const DeviceBuffer<unsigned> from(numbers), before(64), after(64), empty(64);
  BOOST_TEST(run(copies_beside, 1, 64, nullptr, 0, from.data(), before.data(), after.data(), empty.data()) ==
             cudaSuccess);
  for (unsigned i = 0; i < 64; i += 2) {
    BOOST_TEST(before.values()[i] == 0xCBCBCBCBu);
    BOOST_TEST(after.values()[i] == numbers[4 * (i ^ 2) + 1]);
    BOOST_TEST(empty.values()[i] == 0u);
  }
  for (auto* kernel : {copies_from_odd_addresses, copies_not_awaited}) {
    emulated::reset();
    BOOST_TEST(run(kernel, 1, 1, nullptr, 0, from.data()) == cudaSuccess);
    BOOST_TEST(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  }
  emulated::reset();
  BOOST_TEST(run(copies_beside, 1, 64, nullptr, 0, from.data(), before.data(), after.data(), empty.data()) ==
             cudaSuccess);
  BOOST_TEST(after.values()[0] == numbers[9]);
}

BOOST_AUTO_TEST_CASE(writes_beyond_an_allocation_are_found) {
  float* x = nullptr;
  BOOST_TEST(cudaMalloc(&x, 40) == cudaSuccess);
  BOOST_TEST(run(write_one, 1, 1, nullptr, 0, x, size_t{9}) == cudaSuccess);
  BOOST_TEST(cudaDeviceSynchronize() == cudaSuccess);
  BOOST_TEST(run(write_one, 1, 1, nullptr, 0, x, size_t{10}) == cudaSuccess);
  BOOST_TEST(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  cudaFree(x);
}

BOOST_AUTO_TEST_CASE(launches_have_limits) {
  const DeviceBuffer<float> x(std::vector<float>(1, 0.0f));
  const auto launch = [&](dim3 grid, dim3 block, size_t shared = 0) {
    return run(write_one, grid, block, nullptr, shared, x.data(), size_t{0});
  };
  BOOST_TEST(launch(1, 1024) == cudaSuccess);
  BOOST_TEST(launch(1, 1025) == cudaErrorInvalidConfiguration);
  BOOST_TEST(launch(1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
  BOOST_TEST(launch(0, 32) == cudaErrorInvalidConfiguration);
  BOOST_TEST(launch(1, 0) == cudaErrorInvalidConfiguration);
  BOOST_TEST(launch(dim3(1, 65536), 1) == cudaErrorInvalidConfiguration);
  BOOST_TEST(launch(1, 32, 49152) == cudaSuccess);
  BOOST_TEST(launch(1, 32, 49153) == cudaErrorInvalidValue);
  BOOST_TEST(cudaFuncSetAttribute(write_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 232449) ==
             cudaErrorInvalidValue);
  BOOST_TEST(cudaFuncSetAttribute(write_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448) ==
             cudaSuccess);
  BOOST_TEST(launch(1, 32, 232448) == cudaSuccess);
  BOOST_TEST(cudaGetLastError() == cudaErrorInvalidValue);
  BOOST_TEST(cudaGetLastError() == cudaSuccess);
  int blocks = 0;
  BOOST_TEST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, write_one, 256, 100000) == cudaSuccess);
  BOOST_TEST(blocks == 2);
}

BOOST_AUTO_TEST_CASE(order_of_threads_can_be_reversed) {
  setenv("ESPALIER_EMULATED_REVERSE", "1", 1);
  emulated::reset();
  std::vector<double> x(5000, 1.0);
  const DeviceBuffer<double> dx(x), sums(2);
  BOOST_TEST(run(sum_blocks<double>, 2, 128, nullptr, 0, dx.data(), 5000, sums.data()) == cudaSuccess);
  BOOST_TEST(sums.values()[0] + sums.values()[1] == 5000.0);
  const DeviceBuffer<int> halves(64);
  BOOST_TEST(run(halves_of_warps, 1, 64, nullptr, 0, halves.data()) == cudaSuccess);
  BOOST_TEST(halves.values()[20] == -31);
  unsetenv("ESPALIER_EMULATED_REVERSE");
}

BOOST_AUTO_TEST_CASE(many_threads_and_many_launches) {
  const int n = 1 << 20;
  const DeviceBuffer<float> x(std::vector<float>(n, 1.0f)), y(static_cast<size_t>(n)), sums(4096);
  run(add, n / 256, 256, nullptr, 0, x.data(), x.data(), y.data(), n);
  run(sum_blocks<float>, n / 256, 256, nullptr, 0, x.data(), n, sums.data());
  for (int i = 0; i < 10000; ++i) run(add, 1, 128, nullptr, 0, x.data(), x.data(), y.data(), 100);
  BOOST_TEST(cudaDeviceSynchronize() == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()
