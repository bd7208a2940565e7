// Loops are not shared out while other programs keep threads from running.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

#include "espalier/core/cpu/contention.h"
#include "espalier/core/cpu/work_watch.h"

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

/// Waits until no thread spins briefly, for ten seconds at most.
bool spins_long() {
  for (int i = 0; i < 1000 && espalier::spins_briefly(); ++i) std::this_thread::sleep_for(10ms);
  return !espalier::spins_briefly();
}

BOOST_AUTO_TEST_CASE(threads_spin_briefly_after_several_late_runs) {
  std::thread([] {
    BOOST_TEST(spins_long());
    espalier::count_run(true);  // an accident
    for (int i = 0; i < 32; ++i) espalier::count_run(false);
    for (int i = 0; i < 3; ++i) espalier::count_run(true);
    BOOST_TEST(!espalier::spins_briefly());
    espalier::count_run(true);
    BOOST_TEST(espalier::spins_briefly() == espalier::can_spin_briefly());
    BOOST_TEST(spins_long());
    espalier::spin_briefly();  // again
    BOOST_TEST(espalier::spins_briefly() == espalier::can_spin_briefly());
    BOOST_TEST(spins_long());
  }).join();
}

BOOST_AUTO_TEST_CASE(a_kernel_is_late_by_its_shortest_run) {
  std::thread([] {
    const int before = espalier::num_threads();
    espalier::set_num_threads(2);
    const bool several = espalier::num_threads() == 2;
    espalier::WorkWatch watch;
    const auto run = [&](bool shared, std::chrono::milliseconds time) {
      watch.run(shared, [&] { std::this_thread::sleep_for(time); });
    };
    run(true, 5ms);
    for (int i = 0; i < 6; ++i) run(false, 30ms);  // by one thread
    BOOST_TEST(!espalier::spins_briefly());
    for (int i = 0; i < 4; ++i) run(true, 50ms);
    BOOST_TEST(espalier::spins_briefly() == (espalier::can_spin_briefly() && several));
    BOOST_TEST(spins_long());
    espalier::set_num_threads(before);
  }).join();
}

BOOST_AUTO_TEST_SUITE_END()
