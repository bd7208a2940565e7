// ShardGather: where replicas exchange the rows of gradients that are zero but for some rows.
#pragma once
#include "espalier/core/bind_context.h"
#include "espalier/core/op.h"

namespace espalier {

/// The elements that all replicas have for their rows of the batch, in the order of the replicas, as a
/// vector. `means`: those of each replica are multiplied by its part of the batch's rows. A replica
/// without rows of its own gives none. A further input, which it does not read, is the exchange before it:
/// all replicas run them in one order.
class ShardGather : public Op {
 public:
  /// `per_row`: elements for each row of the batch.
  ShardGather(int64_t per_row, int64_t batch_rows, bool means)
      : Op({.effect = Effect::communicates, .runs_on_host = true, .reads = InputSet::only(0)}),
        per_row_(per_row),
        batch_rows_(batch_rows),
        means_(means) {}
  std::string_view name() const override { return "gather_over_replicas"; }
  Attributes attributes() const override {
    return {{"per_row", per_row_}, {"batch_rows", batch_rows_}, {"means", means_}};
  }
  Specs infer(const InputSpecs& in) const override { return {{in[0]->dtype, Shape{per_row_ * batch_rows_}}}; }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }

 private:
  int64_t per_row_, batch_rows_;
  bool means_;
};

}  // namespace espalier
