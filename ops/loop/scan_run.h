// What the kernels of scans do.
#pragma once
#include "espalier/ops/loop/loop_program.h"

namespace espalier {

/// How a loop runs over its sequences.
struct ScanForm {
  bool reverse = false;
  /// The states in front of every so many steps are outputs, too; 0: none are. Those of each step stand where
  /// the elements of the step do, others in the order of the steps.
  int64_t keeps = 0;
};

/// All steps of a loop. Inputs: states, sequences, and what the body uses beside them. Outputs: the last
/// states, the outputs of all steps, and the states that are kept.
class ScanRun {
 public:
  ScanRun(LoopBodyPtr body, ScanForm form, const KernelCall& call, bool bound);
  void run(const StepWatch* watch = nullptr);

 private:
  const KernelCall call_;
  ScanForm form_;
  int64_t steps_;
  LoopProgram program_;
};

/// The gradient of a loop whose forward pass keeps the states in front of every `stride`-th step alone: the
/// steps between are run again, one segment after the other, from the last to the first.
class CheckpointedRun {
 public:
  /// `call` has the inputs and outputs of a ScanRun of `backward` in this direction, but the first
  /// `forward->states` sequences are the states that were kept. `states` has room for those of a segment.
  CheckpointedRun(const LoopBodyPtr& forward, LoopBodyPtr backward, bool reverse, int64_t stride,
                  const KernelCall& call, std::vector<Tensor> states, bool bound);
  /// `watch` sees the steps of the gradient alone.
  void run(const StepWatch* watch = nullptr);

 private:
  void run_again(int64_t begin, int64_t end);
  /// Where the elements of a step are, by its number in the forward pass.
  int64_t place(int64_t step) const { return reverse_ ? step : steps_ - 1 - step; }

  const KernelCall call_;
  bool reverse_;
  int64_t stride_, steps_;
  LoopProgram forward_, backward_;
  std::vector<Tensor> states_;
};

}  // namespace espalier
