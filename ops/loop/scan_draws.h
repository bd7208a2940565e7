// ScanDraws: where the steps of a scan draw their random numbers.
#pragma once
#include "espalier/core/random_streams.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

/// Takes as many streams as the same steps written out would, one behind the other, and gives their numbers
/// to a scan and its gradients: the seed, the first stream, the streams of a step, and within a step the
/// first stream of each random node. Its inputs are those of the scan but this last one, for their shapes.
OpPtr scan_draws_op(LoopBodyPtr body);
/// The body that such an op counts the streams of; null for other ops.
LoopBodyPtr body_of_draws(const Op& op);

/// Reads what that op gives.
class StepStreams {
 public:
  StepStreams() = default;
  explicit StepStreams(const Tensor& draws) : numbers_(draws.to(cpu()).contiguous_copy()) {}
  /// Of a random node, in the step that drew as the `step`-th.
  RandomStream of(size_t node, int64_t step) const {
    const int64_t* numbers = numbers_.data<int64_t>();
    const auto number = [&](size_t i) { return static_cast<uint64_t>(numbers[i]); };
    return {number(0), number(1) + static_cast<uint64_t>(step) * number(2) + number(3 + node)};
  }

 private:
  Tensor numbers_;
};

}  // namespace espalier
