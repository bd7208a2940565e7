// LoopProgram: the kernels of a body, bound to buffers, that run for each step.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "espalier/core/bind_context.h"
#include "espalier/core/function_ref.h"
#include "espalier/ops/loop/loop_body.h"
#include "espalier/ops/loop/scan_draws.h"

namespace espalier {

/// Sees the values behind each step, which the loop of the user gives this number.
using StepWatch = FunctionRef<void(const class LoopProgram&, int64_t step)>;

class LoopProgram {
 public:
  /// `specs` are those of the states and elements, and `beside` is what all steps use beside them. With
  /// `bound`, kernels are bound, for a program that runs often.
  LoopProgram(LoopBodyPtr body, const std::vector<Spec>& specs, std::span<const Tensor* const> beside,
              Device device, bool bound);

  const LoopBody& body() const { return *body_; }
  /// A state or an element, for the next step.
  Tensor& input(size_t i) { return *values_[i][0]; }
  /// Copies element t of a sequence there.
  void read(size_t i, const Tensor& sequence, int64_t t);
  /// Reads where the steps draw, before the first of them.
  void begin();
  /// The step of that element of the sequences, which draws as the `number`-th. An Error names the step.
  void step(int64_t number, int64_t element, const StepWatch* watch = nullptr);
  const Tensor& output(size_t i) const { return *outputs_[i]; }
  /// Copies an output to element t of a sequence.
  void write(size_t i, Tensor& sequence, int64_t t) const;
  /// The outputs of a node of the body in the step that was run last.
  std::span<Tensor* const> values(const Node* node) const {
    const SmallVector<Tensor*, 1>& outputs = values_[position_.at(node)];
    return {outputs.data(), outputs.size()};
  }
  /// The states that the step made become those of the next one.
  void take_states();

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
  const Tensor* draws_ = nullptr;
  Device device_;
  std::deque<Tensor> tensors_;
  std::vector<SmallVector<Tensor*, 1>> values_;  // of inputs, then of nodes
  std::map<const Node*, size_t> position_;
  std::vector<Call> calls_;
  std::vector<const Tensor*> outputs_;
  std::vector<Tensor> next_;  // states, where one takes the place of another
  StepStreams streams_;
};

/// What errors call a step of that number.
std::string text_of_step(const LoopBody& body, int64_t step);

/// Element t of the first axis, in its buffer.
Tensor element(const Tensor& x, int64_t t);

}  // namespace espalier
