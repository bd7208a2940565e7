// Teams of threads.
#include "espalier/executor/replicas/thread_team.h"

#include <boost/test/unit_test.hpp>

#include <sched.h>

#include <atomic>
#include <barrier>
#include <set>
#include <thread>

#include "espalier/core/device.h"
#include "espalier/core/error.h"

using espalier::CommunicatorError;
using espalier::num_threads;
using espalier::ThreadTeam;

namespace {

std::vector<int> cores() {
  std::vector<int> own;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return own;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) own.push_back(core);
  return own;
}

/// Returns true if the environment places OpenMP's threads; then a team does not.
bool placed() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

struct KeepThreads {
  int before = num_threads();
  ~KeepThreads() { espalier::set_num_threads(before); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(thread_team)

BOOST_AUTO_TEST_CASE(all_run_at_once_each_in_its_own_thread) {
  for (const size_t size : {1, 2, 5, 64}) {
    ThreadTeam team(size, true);
    BOOST_TEST(team.size() == size);
    std::barrier meeting(static_cast<std::ptrdiff_t>(size));  // all threads must run concurrently
    std::vector<std::thread::id> first(size), second(size);
    std::vector<int> calls(size);
    team.run([&](size_t i) {
      meeting.arrive_and_wait();
      first[i] = std::this_thread::get_id();
      ++calls[i];
    });
    team.run([&](size_t i) {
      meeting.arrive_and_wait();
      second[i] = std::this_thread::get_id();
      ++calls[i];
    });
    BOOST_TEST((first == second));  // calls with one index run on the same thread
    BOOST_TEST(std::set(first.begin(), first.end()).size() == size);
    BOOST_TEST(!std::count(first.begin(), first.end(), std::this_thread::get_id()));
    BOOST_TEST((calls == std::vector<int>(size, 2)));
  }
}

BOOST_AUTO_TEST_CASE(many_short_turns) {
  ThreadTeam team(7, false);
  std::vector<int> calls(7);
  for (int turn = 0; turn < 2000; ++turn) {
    team.run([&](size_t i) { ++calls[i]; });
    for (const int count : calls) BOOST_REQUIRE(count == turn + 1);  // all calls are complete and visible
  }
}

BOOST_AUTO_TEST_CASE(what_one_throws_comes_out_when_all_are_done) {
  ThreadTeam team(4, true);
  std::atomic<int> done{0};
  const auto others = [&](size_t i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 3 ? 20 : 0));
    ++done;
  };
  BOOST_CHECK_EXCEPTION(team.run([&](size_t i) {
    if (i == 1) throw std::runtime_error("the second");
    others(i);
  }),
                        std::runtime_error,
                        [](const auto& e) { return std::string(e.what()) == "the second"; });
  BOOST_TEST(done.load() == 3);
  // Of several errors the first is thrown, except that a CommunicatorError reports the failure of another
  // rank.
  const auto message = [&](auto&& f) {
    try {
      team.run(f);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  BOOST_TEST(message([](size_t i) { throw std::runtime_error(std::to_string(i)); }) == "0");
  BOOST_TEST(message([](size_t i) {
               if (i == 2) throw std::runtime_error("the cause");
               throw CommunicatorError("another failed");
             }) == "the cause");
  BOOST_TEST(message([](size_t i) { throw CommunicatorError("from " + std::to_string(i)); }) == "from 0");
  BOOST_CHECK_THROW(team.run([](size_t i) {
    if (i == 3) throw 7;  // anything can be thrown
    if (i == 0) throw CommunicatorError("another failed");
  }),
                    int);
  // A failed run leaves no error behind.
  BOOST_TEST(message([](size_t) {}).empty());
  BOOST_TEST(message([](size_t i) {
               if (i == 3) throw CommunicatorError("now");
             }) == "now");
}

BOOST_AUTO_TEST_CASE(cores_and_threads_are_shared_out) {
  const KeepThreads keep;
  const std::vector<int> all = cores();
  for (const int wanted : {1, 2, 5, 8}) {
    espalier::set_num_threads(wanted);
    const int threads = num_threads();  // 1 without OpenMP
    for (const size_t size : {1, 2, 3, 64}) {
      ThreadTeam pinned(size, true), free(size, false);
      std::vector<int> inside(size), inside_free(size);
      std::vector<std::vector<int>> own(size), own_free(size);
      pinned.run([&](size_t i) {
        inside[i] = num_threads();
        own[i] = cores();
      });
      free.run([&](size_t i) {
        inside_free[i] = num_threads();
        own_free[i] = cores();
      });
      const int share = std::max(1, threads / static_cast<int>(size));
      BOOST_TEST((inside == std::vector<int>(size, share)));
      BOOST_TEST((inside_free == std::vector<int>(size, share)));
      for (const auto& free_cores : own_free) BOOST_TEST((free_cores == all));
      std::vector<int> together;
      for (const auto& part : own) together.insert(together.end(), part.begin(), part.end());
      if (all.size() >= size && !placed())
        BOOST_TEST((together == all));  // each thread has cores, and no two share one
      else
        for (const auto& part : own) BOOST_TEST((part == all));
      BOOST_TEST(num_threads() == threads);
      BOOST_TEST((cores() == all));
    }
  }
}

BOOST_AUTO_TEST_CASE(teams_work_beside_each_other_and_within) {
  ThreadTeam a(3, false), b(3, false);
  std::atomic<int> calls{0};
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) b.run([&](size_t) { ++calls; });
  });
  for (int i = 0; i < 200; ++i) a.run([&](size_t) { ++calls; });
  other.join();
  BOOST_TEST(calls.load() == 1200);
  a.run([&](size_t i) {
    if (i == 1) b.run([&](size_t) { ++calls; });
    ThreadTeam inner(2, false);
    inner.run([&](size_t) { ++calls; });
  });
  BOOST_TEST(calls.load() == 1209);
}

BOOST_AUTO_TEST_SUITE_END()
