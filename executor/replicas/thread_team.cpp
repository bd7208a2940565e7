#include "espalier/executor/replicas/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "espalier/core/cpu/cores.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/wait_for_change.h"

namespace espalier {

namespace {

bool placed_by_environment() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);  // without it the thread is only slower
}

bool is_about_others(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommunicatorError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

ThreadTeam::ThreadTeam(size_t threads, bool pinned) : errors_(threads) {
  const int share = std::max(1, num_threads() / static_cast<int>(threads));
  const std::vector<int> cores = allowed_cores();
  pinned = pinned && cores.size() >= threads && !placed_by_environment();
  try {
    for (size_t i = 0; i < threads; ++i) {
      std::vector<int> own;
      if (pinned)
        own.assign(cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * i / threads),
                   cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * (i + 1) / threads));
      threads_.emplace_back([this, i, share, own] { work(i, share, own); });
    }
  } catch (...) {
    ++turn_;
    turn_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  task_ = nullptr;
  ++turn_;
  turn_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run(FunctionRef<void(size_t)> f) {
  std::fill(errors_.begin(), errors_.end(), nullptr);
  task_ = &f;
  busy_.store(threads_.size());
  ++turn_;
  turn_.notify_all();
  for (size_t left = busy_.load(); left;) left = wait_for_change(busy_, left);
  task_ = nullptr;
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors_) {
    if (!error) continue;
    if (!is_about_others(error)) std::rethrow_exception(error);
    if (!first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

void ThreadTeam::work(size_t i, int share, const std::vector<int>& cores) {
  if (!cores.empty()) stay_on(cores);
  set_num_threads(share);
  for (uint64_t done = 0;; ++done) {
    wait_for_change(turn_, done);
    if (!task_) return;
    try {
      (*task_)(i);
    } catch (...) {
      errors_[i] = std::current_exception();
    }
    if (--busy_ == 0) busy_.notify_one();
  }
}

}  // namespace espalier
