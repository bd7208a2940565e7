// ThreadTeam: threads that run a function at the same time, each on its own share of the cores.
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
  /// The kernels of each thread may use an equal share of the threads that those of the caller may use.
  /// `pinned`: each thread, with its OpenMP threads, stays on its own cores if there are enough cores and the
  /// environment does not place OpenMP's threads.
  ThreadTeam(size_t threads, bool pinned);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  size_t size() const { return threads_.size(); }
  /// Calls `f(i)` in each thread, and waits for all. If some threw, rethrows the first exception that is not
  /// a CommunicatorError, else the first one: a CommunicatorError is only the consequence of another failure.
  void run(FunctionRef<void(size_t)> f);

 private:
  void work(size_t i, int share, const std::vector<int>& cores);

  std::vector<std::thread> threads_;
  std::vector<std::exception_ptr> errors_;
  const FunctionRef<void(size_t)>* task_ = nullptr;  // null: the threads end
  std::atomic<uint64_t> turn_{0};
  std::atomic<size_t> busy_{0};
};

}  // namespace espalier
