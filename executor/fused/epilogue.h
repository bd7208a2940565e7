// Epilogues: pointwise programs inside the node whose output they read.
#pragma once
#include <memory>
#include <optional>

#include "espalier/core/workspace.h"
#include "espalier/executor/fused/fused_op.h"

namespace espalier {

/// A program over the elements of an anchor's output, in their order. An op whose traits say
/// `anchors_epilogue` is an anchor.
struct Epilogue {
  OpPtr anchor;
  size_t anchor_inputs;
  Spec output;  ///< of the anchor
  Shape seen;   ///< the shape in which the program sees it
  std::shared_ptr<const FusedOp> program;
  size_t input;  ///< of the program, that is the anchor's output
};

/// The op of anchor and epilogue together. Its inputs are those of the anchor, then those of the program but
/// for the anchor's output.
OpPtr with_epilogue(Epilogue epilogue);

/// That op for any anchor: the anchor's kernel writes where an output will be, if one can hold its elements,
/// and the program follows. On the CPU it follows range by range if that kernel is a RowKernel.
class EpilogueOp : public Op {
 public:
  explicit EpilogueOp(Epilogue epilogue);
  std::string_view name() const override { return "epilogue"; }
  Attributes attributes() const override;
  Specs infer(const InputSpecs& in) const override { return epilogue_.program->infer(in); }
  bool can_write_over(size_t output, size_t input) const override;
  NodeFlops cost(const NodeWork& work) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  int64_t workspace_bytes(const PlannedCall& call) const override;
  bool equals(const Op& other) const override { return this == &other; }

  const Op& anchor() const { return *epilogue_.anchor; }
  const Spec& anchor_output() const { return epilogue_.output; }
  const Program& program() const { return epilogue_.program->program(); }
  /// Which of the program's inputs is the anchor's output.
  size_t program_input() const { return epilogue_.input; }
  size_t anchor_inputs() const { return epilogue_.anchor_inputs; }

  /// The anchor's output, in its own shape and in that of the program: one memory.
  struct Between {
    Tensor made, seen;
  };
  /// In an output of the call that can hold it, else in the workspace.
  Between between(const KernelCall& call, Workspace& workspace) const;
  /// The anchor's kernel, writing there.
  std::unique_ptr<BoundKernel> bind_anchor(const KernelCall& call, Tensor& output, const BindContext& context,
                                           Workspace workspace) const;
  /// The call of the program alone.
  KernelCall program_call(const KernelCall& call, const Tensor& seen) const;

 protected:
  /// What `between` takes of a workspace.
  int64_t between_bytes(DeviceType device) const;

 private:
  std::optional<size_t> holding_output(DeviceType device) const;

  Epilogue epilogue_;
};

}  // namespace espalier
