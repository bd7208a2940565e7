#include "espalier/executor/bucket_kernels.h"

#include "espalier/core/node.h"
#include "espalier/data/share.h"
#include "espalier/ops/arithmetic.h"

namespace espalier {

namespace {

/// What each share of the rows counts for: 1 in all, where the loss is an average over the batch.
std::vector<double> weights_of(const Replication& replication) {
  std::vector<double> weights;
  const auto all = static_cast<double>(replication.batch_rows);
  for (int r = 0; r < replication.replicas; ++r) {
    const data::RowShare share{r, replication.replicas};
    const auto rows = static_cast<double>(share.counted(replication.batch_rows));
    weights.push_back(replication.averages ? rows / all : rows > 0 ? 1 : 0);
  }
  return weights;
}

/// The first part leaves its values times their weight in the sum, the others add theirs; the last has the
/// result in its values. A part that counts for nothing is not looked at: it may hold anything.
class Accumulate {
 public:
  Accumulate(const BucketCall& call, double weight, Accumulators& accumulators)
      : values_(call.values),
        sum_(accumulators[call.number]),
        weight_(full({}, weight, call.values.dtype()).to(call.values.device())),
        first_(call.part == 0),
        last_(call.part + 1 == call.parts),
        counts_(weight != 0) {
    if (!sum_.defined()) {
      sum_ = Tensor(values_.shape(), values_.dtype(), values_.device());
      accumulators[call.number] = sum_;
    }
    scale_ = bind(multiply_op(), {&values_, &weight_}, first_ ? sum_ : values_);
    if (!first_) add_ = bind(add_op(), {&sum_, &values_}, last_ ? values_ : sum_);
  }
  Accumulate(const Accumulate&) = delete;
  Accumulate& operator=(const Accumulate&) = delete;

  void run(RandomStream random) {
    if (counts_) {
      scale_->run(random);
      if (add_) add_->run(random);
    } else if (first_) {
      zero_elements(sum_);
    } else if (last_) {
      copy_elements(sum_, values_);
    }
  }

 private:
  static std::unique_ptr<BoundKernel> bind(const OpPtr& op, std::initializer_list<const Tensor*> from,
                                           Tensor& to) {
    KernelCall call;
    for (const Tensor* tensor : from) call.inputs.push_back(tensor);
    call.outputs.push_back(&to);
    if (to.device().type != DeviceType::cpu) return op->bind_cuda(call);
    return bound([op, call](RandomStream) { cpu_backend().run(*op, call); });  // widens 16-bit reals
  }

  Tensor values_, sum_, weight_;
  bool first_, last_, counts_;
  std::unique_ptr<BoundKernel> scale_, add_;
};

class BucketKernel : public BoundKernel {
 public:
  BucketKernel(std::unique_ptr<BoundKernel> copy, BucketCall call, const Replication& replication,
               Accumulators& accumulators, Exchange& exchange)
      : copy_(std::move(copy)), call_(std::move(call)), exchange_(exchange) {
    weights_ = weights_of(replication);
    if (call_.parts == 1) return;
    accumulate_.emplace(call_, weights_[static_cast<size_t>(call_.share)], accumulators);
    weights_.assign(static_cast<size_t>(replication.replicas / call_.parts), 1.0);
  }
  void run(RandomStream random) override {
    copy_->run(random);
    if (accumulate_) accumulate_->run(random);
    if (sends()) exchange_.start(call_.values, call_.bounds, weights_, call_.where);
  }
  bool can_be_captured() const override {
    return copy_->can_be_captured() && (!sends() || exchange_.can_be_captured());
  }

 private:
  bool sends() const { return call_.part + 1 == call_.parts; }

  std::unique_ptr<BoundKernel> copy_;
  BucketCall call_;
  std::vector<double> weights_;
  std::optional<Accumulate> accumulate_;
  Exchange& exchange_;
};

class ArrivalKernel : public BoundKernel {
 public:
  explicit ArrivalKernel(Exchange& exchange) : exchange_(exchange) {}
  void run(RandomStream) override { exchange_.finish(); }
  bool can_be_captured() const override { return exchange_.can_be_captured(); }

 private:
  Exchange& exchange_;
};

class GatherKernel : public BoundKernel {
 public:
  GatherKernel(Tensor values, std::vector<int64_t> bounds, const std::source_location& where,
               Exchange& exchange)
      : values_(std::move(values)), bounds_(std::move(bounds)), where_(where), exchange_(exchange) {}
  void run(RandomStream) override { exchange_.gather(values_, bounds_, where_); }
  bool can_be_captured() const override { return exchange_.can_be_captured(); }

 private:
  Tensor values_;
  std::vector<int64_t> bounds_;
  std::source_location where_;
  Exchange& exchange_;
};

}  // namespace

std::unique_ptr<BoundKernel> bind_gather(Tensor values, std::vector<int64_t> bounds,
                                         const std::source_location& where, Exchange& exchange) {
  return std::make_unique<GatherKernel>(std::move(values), std::move(bounds), where, exchange);
}

std::unique_ptr<BoundKernel> bind_bucket(std::unique_ptr<BoundKernel> copy, BucketCall call,
                                         const Replication& replication, Accumulators& accumulators,
                                         Exchange& exchange) {
  return std::make_unique<BucketKernel>(std::move(copy), std::move(call), replication, accumulators,
                                        exchange);
}

std::unique_ptr<BoundKernel> bind_arrival(bool last_part, Exchange& exchange) {
  if (!last_part) return bound([](RandomStream) {});
  return std::make_unique<ArrivalKernel>(exchange);
}

}  // namespace espalier
