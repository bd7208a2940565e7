// LoopProgram: the kernels of a body, bound to buffers, that run for each step.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "espalier/core/bind_context.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

class LoopProgram {
 public:
  /// For inputs where the call has them. With `bound`, kernels are bound, for a program that runs often.
  LoopProgram(LoopBodyPtr body, const KernelCall& call, bool reverse, bool keeps_states, bool bound);

  /// All steps of the call.
  void run();

 private:
  struct Call {
    const Op* op;
    KernelCall kernel;
    std::unique_ptr<BoundKernel> bound = nullptr;
    std::optional<size_t> draw = std::nullopt;  ///< random nodes: their number
  };
  void add(const Node& node, bool bound);
  /// A tensor that stays where it is.
  Tensor* own(Tensor tensor) { return &tensors_.emplace_back(std::move(tensor)); }

  LoopBodyPtr body_;
  const KernelCall call_;
  bool reverse_, keeps_states_;
  Device device_;
  std::deque<Tensor> tensors_;
  std::vector<SmallVector<Tensor*, 1>> values_;  // of inputs, then of nodes
  std::map<const Node*, size_t> position_;
  std::vector<Call> calls_;
  std::vector<const Tensor*> outputs_;
  std::vector<Tensor> next_;  // states, where one takes the place of another
};

}  // namespace espalier
