#include "espalier/executor/sharding/bucket_kernels.h"

#include <algorithm>

#include "espalier/core/bind_context.h"
#include "espalier/executor/sharding/gradient_bucket.h"
#include "espalier/executor/sharding/parameter_gather.h"
#include "espalier/executor/sharding/shard_gather.h"
#include "espalier/executor/sharding/shard_reduction.h"
#include "espalier/ops/elementwise/arithmetic.h"

namespace espalier {

namespace {

/// A bucket's place in one replica's plan.
struct BucketCall {
  Tensor values;      // all of it
  size_t number = 0;  // among the plan's buckets
  BatchShard shard = {};
  // Where each replica's part begins, and the end, for a reduce-scatter; empty: an all-reduce.
  std::vector<int64_t> bounds = {};
  std::source_location where;
};

/// The outputs of a bucket with the gaps between them, as the memory plan lays them side by side.
Tensor side_by_side(const KernelCall& call) {
  const Tensor &first = *call.outputs[0], &last = *call.outputs[call.outputs.size() - 1];
  const auto size = static_cast<int64_t>(size_of(first.dtype()));
  const int64_t elements = last.layout().offset + last.elements() - first.layout().offset;
  Layout layout(Shape{aligned_bytes(elements * size) / size});
  layout.offset = first.layout().offset;
  return Tensor(first.storage(), std::move(layout), first.dtype());
}

/// The weight of a shard's values: its part of the rows where they are averages over them, else 1; a shard
/// without rows of its own has none.
double weight_of(const BatchShard& shard, int64_t batch_rows, bool averages) {
  const auto rows = static_cast<double>(shard.counted(batch_rows));
  if (!averages) return rows > 0 ? 1 : 0;
  return batch_rows > 0 ? rows / static_cast<double>(batch_rows) : 1;  // means over no rows are NaN
}
double weight_of(const BatchShard& shard, const Replication& replication) {
  return weight_of(shard, replication.batch_rows, replication.averages);
}

/// Adds up the weighted values of micro-batches: the first one writes the sum, the others add theirs, and the
/// last leaves the result in its values. Values of weight 0 are not read: they may be anything.
class Accumulate {
 public:
  Accumulate(const BucketCall& call, double weight, Accumulators& accumulators)
      : values_(call.values),
        sum_(accumulators[call.number]),
        weight_(full({}, weight, call.values.dtype()).to(call.values.device())),
        first_(call.shard.micro_batch == 0),
        last_(call.shard.is_last_micro_batch()),
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
    return bind_kernel(*op, call);
  }

  Tensor values_, sum_, weight_;
  bool first_, last_, counts_;
  std::unique_ptr<BoundKernel> scale_, add_;
};

class BucketKernel : public BoundKernel {
 public:
  /// Fills the bucket with gradients that lie elsewhere. The last micro-batch then sends it, with the sums
  /// that the others have left in the accumulators added.
  BucketKernel(const GradientBucket& op, const KernelCall& kernel, BucketCall call,
               const ReplicaServices& replica)
      : op_(op), kernel_(kernel), call_(std::move(call)), gradient_sync_(replica.gradient_sync) {
    const Replication& replication = replica.replication;
    const bool accumulates = replication.micro_batches > 1;
    for (int r = 0; r < replication.replicas; ++r)
      weights_.push_back(accumulates ? 1 : weight_of({r, replication.replicas}, replication));
    if (accumulates) accumulate_.emplace(call_, weight_of(call_.shard, replication), replica.accumulators);
  }
  void run(RandomStream random) override {
    op_.run_cpu(kernel_);
    if (accumulate_) accumulate_->run(random);
    if (sends()) gradient_sync_.start(call_.values, call_.bounds, weights_, call_.where);
  }
  bool can_be_captured() const override { return !sends() || gradient_sync_.can_be_captured(); }

 private:
  bool sends() const { return call_.shard.is_last_micro_batch(); }

  const GradientBucket& op_;
  KernelCall kernel_;
  BucketCall call_;
  std::vector<double> weights_;
  std::optional<Accumulate> accumulate_;
  GradientSync& gradient_sync_;
};

class WaitKernel : public BoundKernel {
 public:
  explicit WaitKernel(GradientSync& gradient_sync) : gradient_sync_(gradient_sync) {}
  void run(RandomStream) override { gradient_sync_.finish(); }
  bool can_be_captured() const override { return gradient_sync_.can_be_captured(); }

 private:
  GradientSync& gradient_sync_;
};

class GatherKernel : public BoundKernel {
 public:
  GatherKernel(Tensor values, std::vector<int64_t> bounds, const std::source_location& where,
               GradientSync& gradient_sync)
      : values_(std::move(values)),
        bounds_(std::move(bounds)),
        where_(where),
        gradient_sync_(gradient_sync) {}
  void run(RandomStream) override { gradient_sync_.gather(values_, bounds_, where_); }
  bool can_be_captured() const override { return gradient_sync_.can_be_captured(); }

 private:
  Tensor values_;
  std::vector<int64_t> bounds_;
  std::source_location where_;
  GradientSync& gradient_sync_;
};

class ReductionKernel : public BoundKernel {
 public:
  ReductionKernel(const KernelCall& call, bool means, const ReplicaServices& replica)
      : from_(*call.inputs[0]), values_(*call.outputs[0]), gradient_sync_(replica.gradient_sync) {
    const Replication& replication = replica.replication;
    for (int r = 0; r < replication.replicas; ++r)
      weights_.push_back(weight_of({r, replication.replicas}, replication.batch_rows, means));
    if (call.where) where_ = *call.where;
  }
  void run(RandomStream) override {
    if (from_.address() != values_.address()) copy_elements(from_, values_);
    gradient_sync_.start(values_, {}, weights_, where_);
    gradient_sync_.finish();
  }
  bool can_be_captured() const override { return gradient_sync_.can_be_captured(); }

 private:
  Tensor from_, values_;
  std::vector<double> weights_;
  std::source_location where_;
  GradientSync& gradient_sync_;
};

class RowGatherKernel : public BoundKernel {
 public:
  RowGatherKernel(const KernelCall& call, int64_t per_row, int64_t batch_rows, bool means,
                  const ReplicaServices& replica)
      : values_(*call.outputs[0]), gradient_sync_(replica.gradient_sync) {
    if (call.where) where_ = *call.where;
    const Replication& replication = replica.replication;
    bounds_.push_back(0);
    for (int r = 0; r < replication.replicas; ++r)
      bounds_.push_back(bounds_.back() + BatchShard{r, replication.replicas}.counted(batch_rows) * per_row);
    const auto at = static_cast<size_t>(replica.shard.replica);
    const int64_t begin = bounds_[at], count = bounds_[at + 1] - begin;
    if (count == 0) return;
    Layout layout(call.inputs[0]->shape());
    layout.offset = values_.layout().offset + begin;
    part_ = Tensor(values_.storage(), std::move(layout), values_.dtype());
    from_ = *call.inputs[0];
    if (!means) return;
    weight_ = full({}, weight_of(replica.shard, batch_rows, true), part_.dtype()).to(part_.device());
    KernelCall scale;
    scale.inputs = {&from_, &weight_};
    scale.outputs.push_back(&part_);
    scale_ = bind_kernel(*multiply_op(), scale);
  }
  RowGatherKernel(const RowGatherKernel&) = delete;
  RowGatherKernel& operator=(const RowGatherKernel&) = delete;

  void run(RandomStream random) override {
    if (scale_)
      scale_->run(random);
    else if (part_.defined())
      copy_elements(from_, part_);
    gradient_sync_.finish();
    gradient_sync_.gather(values_, bounds_, where_);
  }
  bool can_be_captured() const override { return gradient_sync_.can_be_captured(); }

 private:
  Tensor from_, values_, part_, weight_;
  std::vector<int64_t> bounds_;
  std::unique_ptr<BoundKernel> scale_;
  std::source_location where_;
  GradientSync& gradient_sync_;
};

}  // namespace

std::unique_ptr<BoundKernel> ShardGather::bind_cpu(const KernelCall& call, const BindContext& context) const {
  auto* replica = context.find<ReplicaServices>();
  if (!replica) return nullptr;
  return std::make_unique<RowGatherKernel>(call, per_row_, batch_rows_, means_, *replica);
}

std::unique_ptr<BoundKernel> ShardReduction::bind_cpu(const KernelCall& call,
                                                      const BindContext& context) const {
  auto* replica = context.find<ReplicaServices>();
  if (!replica) return nullptr;
  return std::make_unique<ReductionKernel>(call, means_, *replica);
}

std::unique_ptr<BoundKernel> GradientBucket::bind_cpu(const KernelCall& call,
                                                      const BindContext& context) const {
  auto* replica = context.find<ReplicaServices>();
  if (!replica) return nullptr;
  BucketCall bucket;
  bucket.values = side_by_side(call);
  bucket.number = replica->buckets++;
  bucket.shard = replica->shard;
  if (call.where) bucket.where = *call.where;
  if (scattered_) {
    // Members lie in the order of their owners.
    for (int r = 0; r <= replica->owners->replicas; ++r) {
      const auto from = std::ranges::find_if(
          parameters_, [&](const Variable& p) { return replica->owners->of(p.node()) >= r; });
      const auto k = static_cast<size_t>(from - parameters_.begin());
      bucket.bounds.push_back(from == parameters_.end()
                                  ? bucket.values.elements()
                                  : call.outputs[k]->layout().offset - bucket.values.layout().offset);
    }
    bucket.bounds.front() = 0;
  }
  return std::make_unique<BucketKernel>(*this, call, std::move(bucket), *replica);
}

std::unique_ptr<BoundKernel> WaitForGradients::bind_cpu(const KernelCall&, const BindContext& context) const {
  auto* replica = context.find<ReplicaServices>();
  if (!replica) return nullptr;
  if (!replica->shard.is_last_micro_batch()) return bound([](RandomStream) {});
  return std::make_unique<WaitKernel>(replica->gradient_sync);
}

std::unique_ptr<BoundKernel> ParameterGather::bind_cpu(const KernelCall& call,
                                                       const BindContext& context) const {
  auto* replica = context.find<ReplicaServices>();
  if (!replica) return nullptr;
  const std::vector<Variable>& parameters = owners_->parameters;
  const Node *first = parameters.front().node(), *last = parameters.back().node();
  std::vector<int64_t> bounds;  // between which each replica has new values
  for (const size_t begin : owners_->begin) {
    const bool end = begin == parameters.size();
    const Node* leaf = end ? last : parameters[begin].node();
    const int64_t whole = replica->leaves(first, leaf).elements();
    bounds.push_back(end ? whole : whole - replica->leaves(leaf, leaf).elements());
  }
  return std::make_unique<GatherKernel>(replica->leaves(first, last), std::move(bounds),
                                        call.where ? *call.where : CallSite(), replica->gradient_sync);
}

}  // namespace espalier
