#include "espalier/data/workers/loader.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "espalier/core/error.h"

namespace espalier::data {

namespace {
using LoaderClock = std::chrono::steady_clock;
using LoadedBatch = std::pair<std::vector<Tensor>, std::exception_ptr>;

/// That this dataset throws EndOfData must not end the epoch as if all had been read.
std::exception_ptr ended_early(int64_t step, const char* how) {
  return std::make_exception_ptr(
      DataError(fmt::format("batch {} of the loader was not read: {}", step, how)));
}
}  // namespace

/// What workers and the loop share. Workers own it, so one that hangs never meets a State that is gone.
struct LoaderPass::State {
  struct Worker {
    std::thread thread;
    int64_t step = -1;  // that it is reading
    LoaderClock::time_point since;
    bool done = false;
  };

  std::shared_ptr<const Feed> feed;
  LoaderOptions options;
  int64_t epoch = 0;
  int64_t steps = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;       // for workers
  std::condition_variable has_returned;  // for the loop
  int64_t taken = 0;                     // steps that workers have begun
  int64_t delivered = 0;
  std::map<int64_t, LoadedBatch> ready;
  bool stop = false;
  bool timed_out = false;
  std::vector<Worker> workers;

  bool may_begin() const { return taken < delivered + options.workers * options.ahead; }

  void run(size_t number) {
    Worker& worker = workers[number];
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stop || taken >= steps || may_begin(); });
      if (stop || taken >= steps) break;
      const int64_t step = worker.step = taken++;
      worker.since = LoaderClock::now();
      lock.unlock();
      LoadedBatch batch;
      try {
        batch.first = feed->batch(epoch, step);
      } catch (const EndOfData&) {
        batch.second = ended_early(step, "the dataset threw EndOfData");
      } catch (...) {
        batch.second = std::current_exception();
        if (!batch.second) {  // the thread is being ended, by no exception: that may not be swallowed
          lock.lock();
          ready[step].second = ended_early(step, "its worker's thread ended");
          worker.done = true;
          has_returned.notify_all();
          throw;
        }
      }
      lock.lock();
      worker.step = -1;
      ready[step] = std::move(batch);
      has_returned.notify_all();
    }
    worker.done = true;
    has_returned.notify_all();
  }

  bool has_next() const { return options.ordered ? ready.count(delivered) > 0 : !ready.empty(); }

  /// What has been waited for: the worker that reads the next batch, or has been reading longest.
  std::string late() const {
    const Worker* longest = nullptr;
    for (const Worker& worker : workers) {
      if (worker.done || worker.step < 0) continue;
      if (options.ordered && worker.step == delivered) longest = &worker;
      if (!longest || (!(options.ordered && longest->step == delivered) && worker.since < longest->since))
        longest = &worker;
    }
    if (!longest) return "no worker is reading one";
    const std::chrono::duration<double> seconds = LoaderClock::now() - longest->since;
    return fmt::format("worker {} has been reading batch {} for {:.3g} s", longest - workers.data(),
                       longest->step, seconds.count());
  }

  /// Waits on `has_returned`, at most as long as the time limit.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (options.timeout > 0)
      return has_returned.wait_for(lock, std::chrono::duration<double>(options.timeout), condition);
    has_returned.wait(lock, condition);
    return true;
  }
};

LoaderPass::LoaderPass(std::shared_ptr<const Feed> feed, int64_t epoch, const LoaderOptions& options)
    : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.feed = std::move(feed);
  state.options = options;
  state.epoch = epoch;
  state.steps = state.feed->steps();
  state.workers = std::vector<State::Worker>(static_cast<size_t>(std::min(options.workers, state.steps)));
  const std::lock_guard lock(state.mutex);
  for (size_t i = 0; i < state.workers.size(); ++i) try {
      state.workers[i].thread = std::thread([shared = state_, i] { shared->run(i); });
    } catch (const std::system_error&) {
      state.workers[i].done = true;
      if (i == 0) throw Error("the loader cannot start a thread: the system has none left");
    }
}

LoaderPass::~LoaderPass() {
  State& state = *state_;
  std::vector<std::thread> ended;
  {
    std::unique_lock lock(state.mutex);
    state.stop = true;
    state.changed.notify_all();
    const auto all_done = [&] {
      for (const State::Worker& worker : state.workers)
        if (!worker.done) return false;
      return true;
    };
    if (!state.timed_out) (void)state.wait(lock, all_done);
    for (State::Worker& worker : state.workers) {
      if (!worker.thread.joinable()) continue;
      if (worker.done)
        ended.push_back(std::move(worker.thread));
      else
        worker.thread.detach();
    }
  }
  for (std::thread& thread : ended) thread.join();
}

bool LoaderPass::at_end() const {
  const std::lock_guard lock(state_->mutex);
  return state_->delivered >= state_->steps;
}

std::vector<Tensor> LoaderPass::next(const std::source_location& where) {
  return located(where, [&] { return take(); });
}

std::vector<Tensor> LoaderPass::take() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.delivered >= state.steps) throw EndOfData();
  const auto no_worker = [&] {
    for (const State::Worker& worker : state.workers)
      if (!worker.done) return false;
    return true;
  };
  const bool in_time = state.wait(lock, [&] { return state.has_next() || no_worker(); });
  if (!in_time) {
    state.timed_out = true;
    throw DataError(fmt::format("the loader had no batch after {} s, its time limit: {}",
                                state.options.timeout, state.late()));
  }
  if (!state.has_next())
    throw DataError(fmt::format("all workers of the loader have ended, and {} of {} batches were read",
                                state.delivered, state.steps));
  const auto found = state.options.ordered ? state.ready.find(state.delivered) : state.ready.begin();
  LoadedBatch batch = std::move(found->second);
  state.ready.erase(found);
  ++state.delivered;
  state.changed.notify_all();
  lock.unlock();
  if (batch.second) std::rethrow_exception(batch.second);
  return std::move(batch.first);
}

namespace detail {

void check_loader_options(const LoaderOptions& options, const std::source_location& where) {
  located(where, [&] {
    if (options.workers < 1 || options.workers > 1024)
      throw DataError(fmt::format("loader: {} workers, not 1 to 1024", options.workers));
    if (options.ahead < 1 || options.ahead > 1024)
      throw DataError(fmt::format("loader: {} batches ahead, not 1 to 1024", options.ahead));
    if (!(options.timeout >= 0) || options.timeout > 1e9)
      throw DataError(fmt::format("loader: the time limit is {} s", options.timeout));
  });
}

}  // namespace detail

}  // namespace espalier::data
