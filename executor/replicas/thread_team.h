// ThreadTeam: threads that do the same piece of work at once, each on a share of the cores.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "espalier/core/function_ref.h"

namespace espalier {

class ThreadTeam {
 public:
  /// Each thread's kernels may use an equal share of the threads that the caller's may use. With `pinned`
  /// each thread, and those that help it, stay on cores of its own where there are enough, unless the
  /// environment already says where OpenMP's threads are to be.
  ThreadTeam(size_t threads, bool pinned);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  size_t size() const { return threads_.size(); }
  /// Calls `f(i)` in each thread, and waits for all. If some threw, rethrows the first exception that is no
  /// CommunicatorError, or else the first: who hears that another failed says less than the one that did.
  void run(FunctionRef<void(size_t)> f);

 private:
  void work(size_t i, int share, const std::vector<int>& cores);

  std::vector<std::thread> threads_;
  std::vector<std::exception_ptr> errors_;
  const FunctionRef<void(size_t)>* task_ = nullptr;  // none: the team ends
  std::atomic<uint64_t> turn_{0};
  std::atomic<size_t> busy_{0};
};

}  // namespace espalier
