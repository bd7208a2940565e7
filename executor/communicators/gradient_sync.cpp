#include "espalier/executor/communicators/gradient_sync.h"

#include "espalier/executor/communicators/collective_queue.h"

namespace espalier {

namespace {

class LocalSync : public GradientSync {
 public:
  void start(const Tensor&, std::span<const int64_t>, std::span<const double>,
             const std::source_location&) override {}
  void finish() override {}
  void gather(const Tensor&, std::span<const int64_t>, const std::source_location&) override {}
  bool can_be_captured() const override { return true; }
};

class DeferredSync : public GradientSync {
 public:
  explicit DeferredSync(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
             const std::source_location& where) override {
    started_.push_back({values, bounds, weights, where});
  }
  void finish() override {
    for (Started& one : started_)
      if (one.bounds.empty())
        communicator_->all_reduce_weighted(one.values, one.weights, one.where);
      else
        communicator_->reduce_parts(one.values, one.bounds, one.weights, one.where);
    started_.clear();
  }
  void gather(const Tensor& values, std::span<const int64_t> bounds,
              const std::source_location& where) override {
    Tensor same = values;
    communicator_->gather_parts(same, bounds, where);
  }
  void forget() override { started_.clear(); }
  void connect(std::shared_ptr<Communicator> communicator) override {
    started_.clear();
    communicator_ = std::move(communicator);
  }

 private:
  struct Started {
    Tensor values;
    std::span<const int64_t> bounds;
    std::span<const double> weights;
    std::source_location where;
  };
  std::shared_ptr<Communicator> communicator_;
  std::vector<Started> started_;
};

class OverlappedSync : public GradientSync {
 public:
  explicit OverlappedSync(std::shared_ptr<Communicator> communicator) { connect(std::move(communicator)); }

  void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
             const std::source_location& where) override {
    if (bounds.empty())
      queue_->all_reduce_weighted(values, weights, where);
    else
      queue_->reduce_parts(values, bounds, weights, where);
  }
  void finish() override { queue_->wait(); }
  void gather(const Tensor& values, std::span<const int64_t> bounds,
              const std::source_location& where) override {
    Tensor same = values;
    communicator_->gather_parts(same, bounds, where);
  }
  void forget() override {
    try {
      queue_->wait();
    } catch (...) {  // the failed step has thrown it
    }
  }
  void connect(std::shared_ptr<Communicator> communicator) override {
    communicator_ = communicator;
    queue_ = std::make_unique<CollectiveQueue>(std::move(communicator));
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<CollectiveQueue> queue_;
};

}  // namespace

std::unique_ptr<GradientSync> make_overlapped_sync(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<OverlappedSync>(std::move(communicator));
}

std::unique_ptr<GradientSync> make_local_sync() { return std::make_unique<LocalSync>(); }

std::unique_ptr<GradientSync> make_deferred_sync(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<DeferredSync>(std::move(communicator));
}

}  // namespace espalier
