// Loops are not shared out while other programs keep threads from running.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "espalier/core/cpu/contention.h"
#include "espalier/core/cpu/parallel.h"

using espalier::Contention;
using namespace std::chrono_literals;

namespace {

/// Into how many ranges a long loop is divided for two threads.
int ranges() {
  espalier::set_num_threads(2);
  std::atomic<int> count = 0;
  std::atomic<int64_t> covered = 0;
  espalier::parallel_for(int64_t{1} << 10, 1, [&](int64_t begin, int64_t end) {
    ++count;
    covered += end - begin;
  });
  return covered == int64_t{1} << 10 ? count.load() : -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(contention)

BOOST_AUTO_TEST_CASE(a_thread_that_waits_too_long_goes_on_alone_for_a_while) {
  std::thread([] {  // which has waited for nothing so far
    for (int i = 0; i < 10; ++i) Contention::report(10us, 1s);
    const bool alone = Contention::here();
    const int now = ranges();
    std::this_thread::sleep_for(300ms);
    const bool still = Contention::here();
    const int later = ranges();
    BOOST_TEST(alone);
    BOOST_TEST(now == 1);
    BOOST_TEST(!still);
    BOOST_TEST(later == (espalier::num_threads() > 1 ? 2 : 1));
  })
      .join();
}

BOOST_AUTO_TEST_CASE(waits_as_long_as_the_work_are_usual) {
  std::thread([] {
    Contention::report(10us, 100us);  // of waking a thread
    Contention::report(10ms, 20ms);   // half a core
    BOOST_TEST(!Contention::here());
  }).join();
}

BOOST_AUTO_TEST_SUITE_END()
