// ShardReduction: where replicas exchange a statistic of the batch in the middle of a step.
#pragma once
#include "espalier/core/bind_context.h"
#include "espalier/core/op.h"

namespace espalier {

/// The value of the whole batch: the mean of the replicas' means, each weighted by its rows, or the sum of
/// their sums. A replica without rows of its own does not count. A further input, which it does not read, is
/// the reduction before it: all replicas run them in one order.
class ShardReduction : public Op {
 public:
  explicit ShardReduction(bool means)
      : Op({.effect = Effect::communicates,
            .runs_on_host = true,
            .reads = InputSet::only(0),
            .in_place = InputSet::only(0)}),
        means_(means) {}
  std::string_view name() const override { return "reduce_over_replicas"; }
  Attributes attributes() const override { return {{"of", std::string(means_ ? "means" : "sums")}}; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }

 private:
  bool means_;
};

}  // namespace espalier
