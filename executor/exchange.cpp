#include "espalier/executor/exchange.h"

#include "espalier/executor/collective_queue.h"

namespace espalier {

namespace {

class ExchangeAlone : public Exchange {
 public:
  void start(const Tensor&, std::span<const int64_t>, std::span<const double>,
             const std::source_location&) override {}
  void finish() override {}
  void gather(const Tensor&, std::span<const int64_t>, const std::source_location&) override {}
  bool can_be_captured() const override { return true; }
};

class ExchangeAtEnd : public Exchange {
 public:
  explicit ExchangeAtEnd(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  void start(const Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
             const std::source_location& where) override {
    waiting_.push_back({values, bounds, weights, where});
  }
  void finish() override {
    for (Message& message : waiting_)
      if (message.bounds.empty())
        communicator_->all_reduce_weighted(message.values, message.weights, message.where);
      else
        communicator_->reduce_parts(message.values, message.bounds, message.weights, message.where);
    waiting_.clear();
  }
  void gather(const Tensor& values, std::span<const int64_t> bounds,
              const std::source_location& where) override {
    Tensor same = values;
    communicator_->gather_parts(same, bounds, where);
  }
  void forget() override { waiting_.clear(); }
  void connect(std::shared_ptr<Communicator> communicator) override {
    waiting_.clear();
    communicator_ = std::move(communicator);
  }

 private:
  struct Message {
    Tensor values;
    std::span<const int64_t> bounds;
    std::span<const double> weights;
    std::source_location where;
  };
  std::shared_ptr<Communicator> communicator_;
  std::vector<Message> waiting_;
};

class ExchangeBeside : public Exchange {
 public:
  explicit ExchangeBeside(std::shared_ptr<Communicator> communicator) { connect(std::move(communicator)); }

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
    } catch (...) {  // what failed is known
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

std::unique_ptr<Exchange> make_exchange_beside(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<ExchangeBeside>(std::move(communicator));
}

std::unique_ptr<Exchange> make_exchange_alone() { return std::make_unique<ExchangeAlone>(); }

std::unique_ptr<Exchange> make_exchange_at_end(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<ExchangeAtEnd>(std::move(communicator));
}

}  // namespace espalier
