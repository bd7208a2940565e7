// The memory of tensors: counters, the cache, threads, and failing allocations.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "espalier/core/cpu/block_pool.h"
#include "espalier/core/error.h"
#include "espalier/core/sanitizers.h"
#include "espalier/core/tensor.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(allocator)

BOOST_AUTO_TEST_CASE(live_and_peak) {
  const esp::MemoryStats before = esp::memory_stats();
  {
    const esp::Tensor a({1000}), b({3}, esp::int64);
    BOOST_TEST(esp::memory_stats().live_bytes - before.live_bytes == 4000 + 24);
    const esp::Tensor view = a.reshape({10, 100}), copy = a;  // share the bytes of `a`
    BOOST_TEST(esp::memory_stats().live_bytes - before.live_bytes == 4000 + 24);
    BOOST_TEST(esp::memory_stats().allocations - before.allocations == 2);
  }
  BOOST_TEST(esp::memory_stats().live_bytes == before.live_bytes);
  esp::reset_peak_memory();
  BOOST_TEST(esp::memory_stats().peak_bytes == before.live_bytes);
  { const esp::Tensor c({1 << 20}); }
  BOOST_TEST(esp::memory_stats().peak_bytes == before.live_bytes + (4 << 20));
  BOOST_TEST(esp::memory_stats().live_bytes == before.live_bytes);
}

BOOST_AUTO_TEST_CASE(blocks_are_aligned_and_apart) {
  std::mt19937 random(5);
  std::vector<esp::Tensor> tensors;
  for (int i = 0; i < 300; ++i) {
    const int64_t n = static_cast<int64_t>(random() % (i % 3 ? 400 : 40'000));
    esp::Tensor t({n}, esp::int32);
    BOOST_REQUIRE(reinterpret_cast<uintptr_t>(t.address()) % 64 == 0);
    for (int32_t& x : t.span<int32_t>()) x = i;
    tensors.push_back(t);
    if (i % 4 == 3) tensors[random() % tensors.size()] = esp::tensor(i, esp::int32);
  }
  for (const esp::Tensor& t : tensors)
    for (int32_t x : t.span<int32_t>()) BOOST_REQUIRE(x == t.span<int32_t>()[0]);
}

BOOST_AUTO_TEST_CASE(empty_tensors_need_nothing) {
  const int64_t before = esp::memory_stats().live_bytes;
  const esp::Tensor none({0, 5}), also({3, 0});
  BOOST_TEST(none.defined());
  BOOST_TEST(esp::memory_stats().live_bytes == before);
}

BOOST_AUTO_TEST_CASE(freed_blocks_are_kept_and_given_back) {
  esp::release_cached_memory();
  BOOST_TEST(esp::memory_stats().cached_bytes == 0);
  { const esp::Tensor t({1 << 18}); }
  const int64_t cached = esp::memory_stats().cached_bytes;
#if !ESPALIER_ADDRESS_SANITIZER && !ESPALIER_THREAD_SANITIZER
  BOOST_TEST(cached >= 4 << 18);
  BOOST_TEST(cached < 6 << 18);
  {
    const esp::Tensor again({1 << 18});
    BOOST_TEST(esp::memory_stats().cached_bytes == 0);  // the same block
  }
#else
  BOOST_TEST(cached == 0);
#endif
  esp::release_cached_memory();
  BOOST_TEST(esp::memory_stats().cached_bytes == 0);
}

BOOST_AUTO_TEST_CASE(more_than_there_is) {
  const esp::MemoryStats before = esp::memory_stats();
  BOOST_CHECK_EXCEPTION(esp::Tensor({int64_t{1} << 50}), esp::OutOfMemory,
                        says({"1125899906842624", "float32", "more than any machine has"}));
  BOOST_CHECK_THROW(esp::Tensor({(int64_t{1} << 62) - 1}, esp::boolean), esp::OutOfMemory);
  BOOST_CHECK_THROW(esp::Tensor({int64_t{1} << 61}, esp::float64), esp::ShapeError);
  for (const size_t bytes : {(size_t{1} << 46) + 1, SIZE_MAX})
    BOOST_CHECK_EXCEPTION(esp::pool_allocate(bytes), esp::OutOfMemory, says({"more than any machine has"}));
  BOOST_CHECK_THROW(esp::zeros({int64_t{1} << 30, int64_t{1} << 30}), esp::Error);
  BOOST_TEST(esp::memory_stats().live_bytes == before.live_bytes);
}

#if !ESPALIER_ADDRESS_SANITIZER && !ESPALIER_THREAD_SANITIZER
BOOST_AUTO_TEST_CASE(the_cache_is_given_back_before_memory_is_refused) {
  const pid_t child = fork();
  if (child == 0) {  // a process limited to 600 MB more than now
    constexpr int64_t mega = 1 << 20;
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + 600 * mega);
    const rlimit limit{most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(10);
    try {
      { const esp::Tensor first({300 * mega}, esp::boolean); }
      if (esp::memory_stats().cached_bytes < 300 * mega) _exit(11);
      { const esp::Tensor second({450 * mega}, esp::boolean); }
      const int64_t cached = esp::memory_stats().cached_bytes;
      _exit(cached >= 450 * mega && cached < 600 * mega ? 0 : 12);
    } catch (const esp::OutOfMemory&) {
      _exit(13);
    }
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_REQUIRE(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_CASE(blocks_of_ended_threads_are_used_again) {
  // A slab of 64 KiB holds 64 blocks: the blocks that a thread frees are enough for the next thread.
  std::set<const void*> seen;
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      std::vector<esp::Tensor> tensors;
      for (int k = 0; k < 40; ++k) tensors.emplace_back(esp::Shape{900}, esp::boolean);
      for (const esp::Tensor& t : tensors) seen.insert(t.address());
    }).join();
  BOOST_TEST(seen.size() < 400u);
  // Threads that run at the same time share the blocks of those that have ended.
  seen.clear();
  for (int i = 0; i < 40; ++i) {
    std::barrier<> both(2);
    const auto allocate = [&](const void*& address) {
      const esp::Tensor t({700}, esp::boolean);
      address = t.address();
      both.arrive_and_wait();
    };
    const void *one = nullptr, *other = nullptr;
    std::thread first([&] { allocate(one); }), second([&] { allocate(other); });
    first.join();
    second.join();
    seen.insert({one, other});
  }
  BOOST_TEST(seen.size() < 30u);
}

BOOST_AUTO_TEST_CASE(what_a_thread_frees_at_its_very_end_is_used_again) {
  constexpr size_t bytes = 900;
  struct Late {
    void* block = nullptr;
    ~Late() {
      void* const another = esp::pool_allocate(bytes);  // with the rest of the list that the thread had
      esp::pool_free(block, bytes);
      esp::pool_free(another, bytes);
    }
  };
  alignas(64) static unsigned char other[1024] = {};
  const void* freed = nullptr;
  std::vector<void*> own;
  std::thread([&] {
    static thread_local Late late;  // is made before the thread's lists, and so ends behind them
    Late& here = late;
    here.block = esp::pool_allocate(bytes);
    freed = here.block;
    for (int i = 0; i < 40; ++i) own.push_back(esp::pool_allocate(bytes));
    for (void* block : own) esp::pool_free(block, bytes);
    const void* const content = other;
    std::memcpy(here.block, &content, sizeof content);
  }).join();
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(esp::pool_allocate(bytes));
  BOOST_TEST(std::ranges::count(blocks, freed) == 1);
  for (void* block : own) BOOST_TEST(std::ranges::count(blocks, block) == 1);
  BOOST_TEST(std::set<void*>(blocks.begin(), blocks.end()).size() == blocks.size());
  BOOST_TEST(std::ranges::count(blocks, other) == 0);  // what lies in a freed block is no list
  for (void* const block : blocks)
    if (block != other) esp::pool_free(block, bytes);
}

BOOST_AUTO_TEST_CASE(blocks_that_another_thread_frees_are_used_again) {
  // One thread allocates, as one that takes requests, and another frees what it is handed.
  std::set<const void*> seen;
  std::vector<esp::Tensor> handed;
  std::barrier<> both(2);
  constexpr int rounds = 40, tensors = 500;
  std::thread frees([&] {
    for (int round = 0; round < rounds; ++round) {
      both.arrive_and_wait();
      handed.clear();
      both.arrive_and_wait();
    }
  });
  for (int round = 0; round < rounds; ++round) {
    for (int k = 0; k < tensors; ++k) handed.emplace_back(esp::Shape{900}, esp::boolean);
    for (const esp::Tensor& t : handed) seen.insert(t.address());
    both.arrive_and_wait();
    both.arrive_and_wait();
  }
  frees.join();
  // What is alive at once, and the lists of both threads: two of a slab's 64 blocks each.
  BOOST_TEST(seen.size() <= static_cast<size_t>(tensors + 4 * 64 + 64));
}
#endif

BOOST_AUTO_TEST_CASE(threads) {
  const int64_t before = esp::memory_stats().live_bytes;
  std::vector<esp::Tensor> left(8);
  {
    std::vector<std::thread> list;
    for (size_t t = 0; t < left.size(); ++t)
      list.emplace_back([&, t] {
        std::vector<esp::Tensor> mine(16);
        for (int i = 0; i < 3000; ++i) {
          esp::Tensor& slot = mine[static_cast<size_t>(i) % mine.size()];
          if (slot.defined() && slot.at<int32_t>({-1}) != i - 16) throw std::logic_error("overwritten");
          slot = esp::full({1 + i % 700}, i, esp::int32);
        }
        left[t] = mine[0];  // freed by a thread other than the one that allocated it
      });
    for (std::thread& thread : list) thread.join();
  }
  for (const esp::Tensor& t : left) BOOST_TEST(t.at<int32_t>({0}) == 2992);
  left.clear();
  BOOST_TEST(esp::memory_stats().live_bytes == before);
}

BOOST_AUTO_TEST_CASE(blocks_of_the_pool) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t bytes = 1; bytes <= 3000; bytes += 7) {
    auto* block = static_cast<unsigned char*>(esp::pool_allocate(bytes));
    BOOST_REQUIRE(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    std::fill_n(block, bytes, static_cast<unsigned char>(bytes));
    blocks.emplace_back(block, bytes);
  }
  for (const auto& [block, bytes] : blocks) {
    for (size_t i = 0; i < bytes; ++i) BOOST_REQUIRE(block[i] == static_cast<unsigned char>(bytes));
    esp::pool_free(block, bytes);
  }
}

BOOST_AUTO_TEST_SUITE_END()
