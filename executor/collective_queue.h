// CollectiveQueue: collectives beside computing.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "espalier/executor/communicator.h"

namespace espalier {

/// A thread that performs the collectives of one communicator, in the order in which they are given. While
/// any is under way nobody else calls the communicator, except for `abort` and its mark; what it says of the
/// last collective (`raised`) is read after `wait`. The thread computes on one core, and sleeps rather than
/// spins while it waits for other ranks.
class CollectiveQueue {
 public:
  using Where = Communicator::Where;

  explicit CollectiveQueue(std::shared_ptr<Communicator> communicator);
  /// Ends what was given, which takes no longer than collectives take to fail. Errors that nobody waited for
  /// are lost here, but the communicator keeps throwing them.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  /// As the communicator's; returns at once. `values` may be used again after `wait`.
  void all_reduce_weighted(Tensor values, std::span<const double> weights, Where where = Where::current()) {
    give(std::move(values), {}, weights, where);
  }
  void reduce_parts(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights,
                    Where where = Where::current()) {
    give(std::move(values), bounds, weights, where);
  }
  /// Returns when all that was given is done. If one failed, those after it were not tried, and its error is
  /// thrown, once; what is given from then on is tried again.
  void wait();

 private:
  struct Work {
    Tensor values;
    std::vector<int64_t> bounds;
    std::vector<double> weights;
    Where where;
  };

  void give(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights, Where where);
  void serve();

  std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  // The first `count_` are given, and those before `next_` done. All are used again once all are done.
  std::deque<Work> works_;
  size_t count_ = 0, next_ = 0;
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace espalier
