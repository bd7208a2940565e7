// What works in a forked child, and under a limit of its memory. The thread sanitizer allows no forks beside
// threads, and the address sanitizer no limits.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/core/sanitizers.h"
#include "espalier/data/prefetch.h"
#include "espalier/data/workers/parallel.h"
#include "espalier/ops/ops.h"
#include "testing.h"

#if !ESPALIER_THREAD_SANITIZER

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Whether `f` returns true in a forked child.
bool in_child(const std::function<bool()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    bool passes = false;
    try {
      passes = f();
    } catch (...) {
    }
    _exit(passes ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Batches that take so long to read that a thread reads them ahead.
class SlowFeed : public esp::Feed {
 public:
  std::string name() const override { return "slow"; }
  std::vector<esp::Spec> specs() const override { return {{esp::int64, {2}}}; }
  int64_t steps() const override { return 30; }
  int64_t rows(int64_t) const override { return 2; }
  void read(int64_t epoch, int64_t step, std::span<esp::Tensor> outputs) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (int64_t& v : outputs[0].span<int64_t>()) v = 100 * epoch + step;
  }
};

bool reads(esp::data::Prefetcher& batches, int64_t epoch, int64_t from, int64_t to) {
  bool right = true;
  for (int64_t step = from; step < to; ++step)
    right = batches.next()[0].at<int64_t>({1}) == 100 * epoch + step && right;
  return right;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(child_process)

BOOST_AUTO_TEST_CASE(a_forked_child_goes_on_with_the_batches) {
  esp::data::Prefetcher batches(std::make_shared<SlowFeed>());
  batches.start(0);
  BOOST_TEST(reads(batches, 0, 0, 10));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the thread has read ahead, and sleeps
  BOOST_TEST(in_child([&] {
    if (!reads(batches, 0, 10, 30)) return false;
    batches.start(1);
    return reads(batches, 1, 0, 30);
  }));
  BOOST_TEST(in_child([&] {
    batches.start(2);  // without another batch of the old epoch
    return reads(batches, 2, 0, 30);
  }));
  BOOST_TEST(reads(batches, 0, 10, 30));
}

BOOST_AUTO_TEST_CASE(a_forked_child_reads_rows_without_the_workers_of_its_parent) {
  const auto plain = std::make_shared<esp::data::TensorDataset>(
      std::vector<esp::Tensor>{esp::tensor({0, 1, 2, 3, 4, 5, 6, 7}).to(esp::int64)});
  const esp::data::DatasetPtr rows = esp::data::parallel(plain, {.workers = 2});
  BOOST_TEST(in_child([&] {
    std::vector<esp::Tensor> read{esp::Tensor({3}, esp::int64)};
    rows->read(std::vector<int64_t>{5, 0, 7}, read);
    return difference(read[0], esp::tensor({int64_t{5}, int64_t{0}, int64_t{7}})) == 0;
  }));
}

#if !ESPALIER_ADDRESS_SANITIZER
BOOST_AUTO_TEST_CASE(products_without_memory_for_the_library_throw) {
  const esp::Variable a = esp::ones({8, 8}, esp::float64);
  BOOST_TEST(in_child([&] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (int64_t{48} << 20));
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    bool told = false;
    std::thread([&] {  // which has multiplied nothing yet
      try {
        (void)esp::matmul(a, a).value();
      } catch (const esp::OutOfMemory& error) {
        told = std::string_view(error.what()).find("OpenBLAS") != std::string_view::npos;
      }
    })
        .join();
    return told;
  }));
}
#endif

BOOST_AUTO_TEST_SUITE_END()

#endif
