#include "espalier/executor/collective_queue.h"

#include "espalier/core/device.h"

namespace espalier {

CollectiveQueue::CollectiveQueue(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  thread_ = std::thread([this] { serve(); });
  communicator_->set_napping(true);
}

CollectiveQueue::~CollectiveQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  given_.notify_one();
  thread_.join();
  communicator_->set_napping(false);
}

void CollectiveQueue::give(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights,
                           Where where) {
  {
    const std::lock_guard lock(mutex_);
    if (next_ == count_) next_ = count_ = 0;
    if (count_ == works_.size()) works_.emplace_back();
    Work& work = works_[count_];
    work.values = std::move(values);
    work.bounds.assign(bounds.begin(), bounds.end());
    work.weights.assign(weights.begin(), weights.end());
    work.where = where;
    ++count_;
  }
  given_.notify_one();
}

void CollectiveQueue::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return next_ == count_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CollectiveQueue::serve() {
  set_num_threads(1);
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [&] { return next_ < count_ || ending_; });
    if (next_ == count_) return;
    Work& work = works_[next_];  // stays where it is when more are given
    std::exception_ptr error;
    if (!error_) {
      lock.unlock();
      try {
        if (work.bounds.empty())
          communicator_->all_reduce_weighted(work.values, work.weights, work.where);
        else
          communicator_->reduce_parts(work.values, work.bounds, work.weights, work.where);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
    }
    work.values = Tensor();
    if (++next_ == count_) done_.notify_all();
  }
}

}  // namespace espalier
