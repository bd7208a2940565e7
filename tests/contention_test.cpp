// Loops are not shared out while other programs keep threads from running.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

#include "espalier/core/cpu/contention.h"

using espalier::Contention;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(contention)

BOOST_AUTO_TEST_CASE(a_thread_that_waits_too_long_goes_on_alone_for_a_while) {
  std::thread([] {  // which has waited for nothing so far
    for (int i = 0; i < 10; ++i) Contention::report(10us, 1s);
    const bool alone = Contention::here();
    std::this_thread::sleep_for(300ms);
    const bool still = Contention::here();
    BOOST_TEST(alone);
    BOOST_TEST(!still);
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
