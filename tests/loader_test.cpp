// Datasets that several threads read.
#include "espalier/data/workers/loader.h"

#include <pthread.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/batches.h"
#include "espalier/data/views/select.h"
#include "espalier/data/workers/parallel.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::testing;
using data::DatasetPtr, data::LoaderOptions;
using Numbers = std::vector<int64_t>;

namespace {

/// Threads that hang wait here until it opens.
struct Gate {
  void wait() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    --waiting;
    changed.notify_all();
  }
  void open_and_wait_until_empty() {
    std::unique_lock lock(mutex);
    open = true;
    changed.notify_all();
    changed.wait(lock, [&] { return waiting == 0; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  bool open = false;
};

/// Numbers of rows, and what is drawn for them; `before` is called for each row.
struct Watched : DrawingDataset {
  Watched(int64_t rows, std::function<void(int64_t)> f) : DrawingDataset(rows), before(std::move(f)) {}
  void read_in(const data::ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    for (const int64_t row : rows) before(row);
    DrawingDataset::read_in(context, rows, outputs);
  }
  std::function<void(int64_t)> before;
};

DatasetPtr watched(
    int64_t rows, std::function<void(int64_t)> f = [](int64_t) {}) {
  return std::make_shared<Watched>(rows, std::move(f));
}

using Shown = std::vector<std::pair<int64_t, double>>;

template <class Batches>
Shown shown_by(const Batches& batches, int epochs = 2) {
  Shown rows;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [number, drawn] : batches)
      for (size_t i = 0; i < static_cast<size_t>(number.elements()); ++i)
        rows.emplace_back(number.template span<int64_t>()[i], drawn.template span<double>()[i]);
  return rows;
}

const data::DistributorOptions batching{.batch_size = 4, .shuffle = true, .seed = 3};

}  // namespace

BOOST_AUTO_TEST_SUITE(loader)

BOOST_AUTO_TEST_CASE(workers_read_what_batches_do) {
  const auto slow =
      watched(50, [](int64_t row) { std::this_thread::sleep_for(std::chrono::microseconds(row % 7 * 50)); });
  const Shown one = shown_by(data::batches<2>(slow, batching));
  for (const int64_t workers : {1, 3, 8})
    for (const int64_t ahead : {1, 2}) {
      BOOST_CHECK(shown_by(data::loader<2>(slow, batching, {.workers = workers, .ahead = ahead})) == one);
      Shown any = shown_by(
          data::loader<2>(slow, batching, {.workers = workers, .ordered = false, .ahead = ahead}), 1);
      Shown first(one.begin(), one.begin() + 50);
      std::ranges::sort(any);
      std::ranges::sort(first);
      BOOST_CHECK(any == first);
    }
  BOOST_TEST(data::loader<2>(slow, batching).steps() == 13);
}

BOOST_AUTO_TEST_CASE(a_slow_batch_does_not_stop_others_without_order) {
  Gate gate;
  const auto one_waits = watched(5, [&](int64_t row) {
    if (row == 0) gate.wait();
  });
  Numbers order;
  for (const auto& [number, drawn] :
       data::loader<2>(one_waits, {.batch_size = 1}, {.workers = 2, .ordered = false, .ahead = 8})) {
    order.push_back(number.span<int64_t>()[0]);
    if (order.size() == 4) gate.open_and_wait_until_empty();
  }
  BOOST_TEST(order == (Numbers{1, 2, 3, 4, 0}));
}

BOOST_AUTO_TEST_CASE(workers_read_as_far_ahead_as_is_said) {
  std::atomic<int64_t> begun{0};
  const auto counted = watched(20, [&](int64_t) { ++begun; });
  int64_t asked = 0;
  for ([[maybe_unused]] const auto& batch :
       data::loader<2>(counted, {.batch_size = 1}, {.workers = 2, .ahead = 3})) {
    const int64_t all = std::min<int64_t>(20, ++asked + 2 * 3);
    while (begun < all) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    BOOST_TEST(begun == all);
  }
  BOOST_TEST(asked == 20);
}

BOOST_AUTO_TEST_CASE(what_a_worker_throws_reaches_the_loop) {
  struct Mine : std::exception {
    const char* what() const noexcept override { return "row 6 is broken"; }
  };
  const auto broken = watched(12, [](int64_t row) {
    if (row == 6) throw Mine();
  });
  Numbers before;
  const auto loop = [&] {
    for (const auto& [number, drawn] : data::loader<2>(broken, {.batch_size = 2}, {.workers = 3}))
      before.push_back(number.span<int64_t>()[0]);
  };
  BOOST_CHECK_EXCEPTION(loop(), Mine, says({"row 6 is broken"}));
  BOOST_TEST(before == (Numbers{0, 2, 4}));
  BOOST_CHECK_EXCEPTION(read_rows(*data::parallel(broken, {.workers = 3}), {0, 1, 2, 6, 7}), Mine,
                        says({"row 6"}));
  BOOST_CHECK_EXCEPTION(read_rows(*data::parallel(broken, {.timeout = 100}), {6}), Mine, says({"row 6"}));
}

BOOST_AUTO_TEST_CASE(a_dataset_that_ends_early_is_an_error) {
  const auto ends = watched(12, [](int64_t row) {
    if (row == 6) throw EndOfData();
  });
  BOOST_CHECK_EXCEPTION(shown_by(data::loader<2>(ends, {.batch_size = 2})), DataError,
                        says({"EndOfData", "row 6", "loader_test.cpp"}));
  BOOST_CHECK_EXCEPTION(read_rows(*data::parallel(ends), {6}), DataError, says({"EndOfData", "row 6"}));
}

BOOST_AUTO_TEST_CASE(a_feed_that_ends_early_is_an_error) {
  struct Ends : Feed {
    std::string name() const override { return "ends"; }
    std::vector<Spec> specs() const override { return {{DType::int64, {1}}}; }
    int64_t steps() const override { return 4; }
    int64_t rows(int64_t) const override { return 1; }
    void read(int64_t, int64_t step, std::span<Tensor>) const override {
      if (step == 2) throw EndOfData();
    }
  };
  data::LoaderPass pass(std::make_shared<Ends>(), 0, {.workers = 2});
  for (int step = 0; step < 2; ++step) (void)pass.next();
  BOOST_CHECK_EXCEPTION(pass.next(), DataError, says({"EndOfData", "batch 2"}));
  (void)pass.next();
  BOOST_CHECK_THROW(pass.next(), EndOfData);
}

BOOST_AUTO_TEST_CASE(a_worker_whose_thread_ends_is_an_error) {
  const auto exits = watched(12, [](int64_t row) {
    if (row == 6) pthread_exit(nullptr);
  });
  for (const int64_t workers : {1, 3})
    BOOST_CHECK_EXCEPTION(shown_by(data::loader<2>(exits, {.batch_size = 2}, {.workers = workers})),
                          DataError, says({"batch 3", "thread ended"}));
  const DatasetPtr rows = data::parallel(exits, {.workers = 2});
  BOOST_CHECK_EXCEPTION(read_rows(*rows, {6}), DataError, says({"row 6", "ended"}));
  BOOST_TEST(read_rows(*rows, {5, 7, 9})[0].span<int64_t>()[2] == 9);  // by the other
}

BOOST_AUTO_TEST_CASE(a_worker_that_hangs_exceeds_the_limit) {
  Gate gate;
  const auto hangs = watched(8, [&](int64_t row) {
    if (row == 2) gate.wait();
  });
  Numbers before;
  const auto loop = [&] {
    for (const auto& [number, drawn] :
         data::loader<2>(hangs, {.batch_size = 1}, {.workers = 2, .timeout = 0.2}))
      before.push_back(number.span<int64_t>()[0]);
  };
  BOOST_CHECK_EXCEPTION(loop(), DataError, says({"0.2 s", "worker", "batch 2"}));
  BOOST_TEST(before == (Numbers{0, 1}));
  {
    const DatasetPtr rows = data::parallel(hangs, {.workers = 2, .timeout = 0.2});
    BOOST_CHECK_EXCEPTION(read_rows(*rows, {2, 3}), DataError, says({"0.2 s", "worker", "rows 2"}));
    BOOST_TEST(read_rows(*rows, {4, 5})[0].span<int64_t>()[1] == 5);  // by the other
  }
  gate.open_and_wait_until_empty();
}

BOOST_AUTO_TEST_CASE(a_late_worker_writes_to_nothing_of_the_reader_s) {
  Gate gate;
  DatasetPtr late = watched(8, [&](int64_t) { gate.wait(); });
  const std::weak_ptr<const data::Dataset> stays = late;
  std::vector<Tensor> outputs = data::room_for_rows(*late, 2);
  {
    const DatasetPtr rows = data::parallel(std::move(late), {.workers = 1, .timeout = 0.2});
    BOOST_CHECK_THROW(rows->read(Numbers{2, 3}, outputs), DataError);
  }
  for (int64_t& number : outputs[0].span<int64_t>()) number = 7;  // the buffers are used otherwise
  gate.open_and_wait_until_empty();
  while (!stays.expired()) std::this_thread::yield();  // until the worker has ended
  for (const int64_t number : outputs[0].span<int64_t>()) BOOST_TEST(number == 7);
}

BOOST_AUTO_TEST_CASE(loops_may_be_left) {
  std::atomic<int> reading{0};
  const auto slow = watched(1000, [&](int64_t) {
    ++reading;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    --reading;
  });
  for (const bool ordered : {true, false})
    for (int count = 0; count < 6; ++count) {
      int seen = 0;
      for ([[maybe_unused]] const auto& batch :
           data::loader<2>(slow, batching, {.workers = 3, .ordered = ordered}))
        if (seen++ == count) break;
      BOOST_TEST(reading == 0);  // no thread is left
    }
  const auto batches = data::loader<2>(slow, {.batch_size = 100});
  auto first = batches.begin(), copy = first;
  ++first;
  BOOST_TEST((*first)[0].span<int64_t>()[0] == 100);
  BOOST_TEST((*batches.begin())[0].span<int64_t>()[0] == 0);  // another pass
}

BOOST_AUTO_TEST_CASE(parallel_rows_are_the_same_rows) {
  const auto plain = watched(40);
  for (const double timeout : {0.0, 100.0})
    for (const int64_t workers : {1, 2, 7}) {
      const DatasetPtr rows = data::parallel(plain, {.workers = workers, .timeout = timeout});
      BOOST_TEST(rows->rows() == 40);
      BOOST_CHECK(shown_by(data::batches<2>(rows, batching)) == shown_by(data::batches<2>(plain, batching)));
      (void)read_rows(*rows, {});
    }
  // From several threads at once.
  const DatasetPtr rows = data::parallel(plain, {.workers = 3});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int64_t row = 0; row < 30; ++row)
        wrong += read_rows(*rows, {row, row + 5, row + 9})[0].span<int64_t>()[1] != row + 5;
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(arguments) {
  const auto rows = numbered(3);
  for (const LoaderOptions& wrong : {LoaderOptions{.workers = 0}, LoaderOptions{.workers = 2000},
                                     LoaderOptions{.ahead = 0}, LoaderOptions{.timeout = -1}})
    BOOST_CHECK_EXCEPTION(data::loader<1>(rows, {}, wrong), DataError, says({"loader", "loader_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::loader<2>(rows), DataError, says({"1 columns"}));
  BOOST_CHECK_EXCEPTION(data::parallel(rows, {.workers = 0}), DataError,
                        says({"0 workers", "loader_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::parallel(nullptr), DataError, says({"null"}));
}

BOOST_AUTO_TEST_SUITE_END()
