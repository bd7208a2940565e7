// CollectiveQueue: collectives in a second thread, while the owner computes.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "espalier/executor/communicators/communicator.h"

namespace espalier {

/// A thread that performs the collectives of one communicator in the order of their calls. Between such a
/// call and the return of `wait` the owner may call `abort` and `request_stop` of the communicator, and
/// nothing else. The thread computes on one core, and blocks instead of spinning while it waits for other
/// ranks. It is woken when enough bytes have come that they are worth it; what it has not begun is performed
/// by `wait`.
class CollectiveQueue {
 public:
  using Where = Communicator::Where;

  explicit CollectiveQueue(std::shared_ptr<Communicator> communicator);
  /// Performs the collectives that remain, or lets them fail. Errors are lost here, but the communicator goes
  /// on throwing them.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  /// As those of the communicator, but they return at once. `values` may be used again after `wait`.
  void all_reduce_weighted(Tensor values, std::span<const double> weights, Where where = Where::current()) {
    push(std::move(values), {}, weights, where);
  }
  void reduce_parts(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights,
                    Where where = Where::current()) {
    push(std::move(values), bounds, weights, where);
  }
  /// Returns when all collectives are done. After one that fails the later ones are skipped, and `wait`
  /// throws its error, once; the queue works again then.
  void wait();

 private:
  struct Job {
    Tensor values;
    std::vector<int64_t> bounds;
    std::vector<double> weights;
    Where where;
  };

  void push(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights, Where where);
  void serve();
  /// Performs the next job, without the lock meanwhile.
  void perform_next(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;
  std::condition_variable pushed_, done_;
  // The first `count_` are pushed, and those before `next_` done. All are reused once all are done.
  std::deque<Job> jobs_;
  size_t count_ = 0, next_ = 0;
  int64_t bytes_ = 0;     // of the jobs that are pushed
  bool serving_ = false;  // the thread is awake, and performs all of them
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace espalier
