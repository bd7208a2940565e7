#include "espalier/data/workers/parallel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

/// A batch that workers read. They share it, so one that is late never meets a job that is gone.
struct ReadJob {
  struct Part {
    std::vector<int64_t> rows;
    std::vector<Tensor> outputs;
    std::exception_ptr error;
    int64_t worker = -1;  // that has begun it
    bool done = false;
  };
  ReadContext context;
  std::vector<Part> parts;
};

/// Threads and what waits for them. Threads own it, with the dataset.
struct ReadPool {
  struct Task {
    std::shared_ptr<ReadJob> job;
    size_t part = 0;
  };

  DatasetPtr source;
  std::mutex mutex;
  std::condition_variable has_task, has_returned;
  std::deque<Task> tasks;
  std::vector<std::thread> threads;
  std::vector<char> ended;  // one for each thread
  bool stop = false;
  bool timed_out = false;

  bool all_ended() const { return std::ranges::count(ended, 0) == 0; }

  void run(size_t number) {
    std::unique_lock lock(mutex);
    while (true) {
      has_task.wait(lock, [&] { return stop || !tasks.empty(); });
      if (stop) break;
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      ReadJob::Part& part = task.job->parts[task.part];
      part.worker = static_cast<int64_t>(number);
      lock.unlock();
      std::exception_ptr error;
      try {
        checked_read(*source, task.job->context, part.rows, part.outputs);
      } catch (...) {
        error = std::current_exception();
        if (!error) {  // the thread is being ended, by no exception: that may not be swallowed
          lock.lock();
          part.error = std::make_exception_ptr(
              DataError(fmt::format("the thread of worker {} ended while it read row {} and those after it",
                                    number, part.rows[0])));
          part.done = true;
          ended[number] = 1;
          has_returned.notify_all();
          throw;
        }
      }
      lock.lock();
      part.error = error;
      part.done = true;
      has_returned.notify_all();
    }
    ended[number] = 1;
    has_returned.notify_all();
  }
};

class ParallelRows : public Dataset {
 public:
  ParallelRows(DatasetPtr source, const ParallelOptions& options)
      : source_(source), options_(options), pool_(std::make_shared<ReadPool>()) {
    pool_->source = std::move(source);
    const auto count = static_cast<size_t>(options.workers);
    pool_->ended.assign(count, 0);
    const std::lock_guard lock(pool_->mutex);
    for (size_t i = 0; i < count; ++i) try {
        pool_->threads.emplace_back([pool = pool_, i] { pool->run(i); });
      } catch (const std::system_error&) {
        pool_->ended[i] = 1;
        if (i == 0) throw Error("parallel: the system has no thread left");
      }
  }
  ~ParallelRows() override { is_elsewhere() ? leave_threads() : end_threads(); }

  int64_t rows() const override { return source_->rows(); }
  std::vector<Spec> specs() const override { return source_->specs(); }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    return source_->open_sizes(rows);
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    if (rows.empty()) return;
    if (is_elsewhere()) return checked_read(*source_, context, rows, outputs);
    const auto job = make_job(context, rows, outputs);
    std::unique_lock lock(pool_->mutex);
    for (size_t i = 0; i < job->parts.size(); ++i) pool_->tasks.push_back({job, i});
    pool_->has_task.notify_all();
    const auto returned = [&] {
      return std::ranges::all_of(job->parts, &ReadJob::Part::done) || pool_->all_ended();
    };
    if (options_.timeout > 0) {
      if (!pool_->has_returned.wait_for(lock, std::chrono::duration<double>(options_.timeout), returned))
        throw_late(*job);
    } else {
      pool_->has_returned.wait(lock, returned);
    }
    std::erase_if(pool_->tasks, [&](const ReadPool::Task& task) { return task.job == job; });
    lock.unlock();
    int64_t first = 0;
    for (const ReadJob::Part& part : job->parts) {
      if (part.error) std::rethrow_exception(part.error);
      if (!part.done) throw DataError("parallel: all workers have ended");
      std::vector<int64_t> positions(part.rows.size());
      for (int64_t& position : positions) position = first++;
      if (options_.timeout > 0) detail::copy_rows(part.outputs, positions, outputs);
    }
  }

 private:
  bool is_elsewhere() const { return getpid() != process_; }

  /// In parts of nearly as many rows. With a time limit, the worker's buffers are its own: it may still write
  /// to them when the caller is gone.
  std::shared_ptr<ReadJob> make_job(const ReadContext& context, std::span<const int64_t> rows,
                                    std::span<Tensor> outputs) const {
    auto job = std::make_shared<ReadJob>();
    job->context = context;
    const auto count = static_cast<int64_t>(rows.size()), parts = std::min(count, options_.workers);
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t begin = count * i / parts, end = count * (i + 1) / parts;
      ReadJob::Part part;
      part.rows.assign(rows.begin() + begin, rows.begin() + end);
      part.outputs = options_.timeout > 0 ? detail::room_like(outputs, end - begin)
                                          : detail::slices_of(outputs, begin, end);
      job->parts.push_back(std::move(part));
    }
    return job;
  }

  [[noreturn]] void throw_late(const ReadJob& job) const {
    pool_->timed_out = true;
    std::string late = "no worker has begun";
    for (const ReadJob::Part& part : job.parts)
      if (!part.done && part.worker >= 0)
        late = fmt::format("worker {} is still reading rows {}", part.worker,
                           part.rows.size() == 1
                               ? fmt::format("{}", part.rows[0])
                               : fmt::format("{} to {} of the batch", part.rows.front(), part.rows.back()));
    std::erase_if(pool_->tasks, [&](const ReadPool::Task& task) { return task.job.get() == &job; });
    throw DataError(
        fmt::format("parallel: a batch of rows was not read within {} s: {}", options_.timeout, late));
  }

  void end_threads() {
    std::unique_lock lock(pool_->mutex);
    pool_->stop = true;
    pool_->has_task.notify_all();
    if (options_.timeout > 0 && !pool_->timed_out)
      pool_->has_returned.wait_for(lock, std::chrono::duration<double>(options_.timeout),
                                   [&] { return pool_->all_ended(); });
    if (options_.timeout == 0) pool_->has_returned.wait(lock, [&] { return pool_->all_ended(); });
    std::vector<std::thread> threads = std::move(pool_->threads);
    const std::vector<char> ended = pool_->ended;
    lock.unlock();
    for (size_t i = 0; i < threads.size(); ++i)
      if (ended[i])
        threads[i].join();
      else
        threads[i].detach();
  }

  /// Threads that this process does not have cannot be joined.
  void leave_threads() { (void)new std::shared_ptr<ReadPool>(pool_); }

  DatasetPtr source_;
  ParallelOptions options_;
  std::shared_ptr<ReadPool> pool_;
  const pid_t process_ = getpid();
};

}  // namespace

DatasetPtr parallel(DatasetPtr dataset, const ParallelOptions& options, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "parallel");
    if (options.workers < 1 || options.workers > 1024)
      throw DataError(fmt::format("parallel: {} workers, not 1 to 1024", options.workers));
    if (!(options.timeout >= 0) || options.timeout > 1e9)
      throw DataError(fmt::format("parallel: the time limit is {} s", options.timeout));
    return std::make_shared<ParallelRows>(std::move(dataset), options);
  });
}

}  // namespace espalier::data
