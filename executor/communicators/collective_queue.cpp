#include "espalier/executor/communicators/collective_queue.h"

#include "espalier/core/device.h"

namespace espalier {

namespace {

// Adding up and sending so many takes about as long as it takes to wake a thread, and its caller afterwards.
constexpr int64_t worth_waking = 256 * 1024;

}  // namespace

CollectiveQueue::CollectiveQueue(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  thread_ = std::thread([this] { serve(); });
}

CollectiveQueue::~CollectiveQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pushed_.notify_one();
  thread_.join();
}

void CollectiveQueue::push(Tensor values, std::span<const int64_t> bounds, std::span<const double> weights,
                           Where where) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (next_ == count_) next_ = count_ = 0, bytes_ = 0;
    if (count_ == jobs_.size()) jobs_.emplace_back();
    Job& job = jobs_[count_];
    bytes_ += static_cast<int64_t>(values.bytes());
    job.values = std::move(values);
    job.bounds.assign(bounds.begin(), bounds.end());
    job.weights.assign(weights.begin(), weights.end());
    job.where = where;
    ++count_;
    wake = !serving_ && bytes_ >= worth_waking;
    serving_ |= wake;
  }
  if (wake) pushed_.notify_one();
}

void CollectiveQueue::wait() {
  std::unique_lock lock(mutex_);
  while (!serving_ && next_ < count_) perform_next(lock);
  done_.wait(lock, [&] { return next_ == count_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CollectiveQueue::perform_next(std::unique_lock<std::mutex>& lock) {
  Job& job = jobs_[next_];  // a push does not move it
  std::exception_ptr error;
  if (!error_) {
    lock.unlock();
    try {
      if (job.bounds.empty())
        communicator_->all_reduce_weighted(job.values, job.weights, job.where);
      else
        communicator_->reduce_parts(job.values, job.bounds, job.weights, job.where);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
  }
  job.values = Tensor();
  ++next_;
}

void CollectiveQueue::serve() {
  set_num_threads(1);
  std::unique_lock lock(mutex_);
  while (true) {
    pushed_.wait(lock, [&] { return serving_ || ending_; });
    communicator_->set_blocking_wait(true);
    while (next_ < count_) perform_next(lock);
    communicator_->set_blocking_wait(false);
    serving_ = false;
    if (ending_) return;
    done_.notify_all();
  }
}

}  // namespace espalier
