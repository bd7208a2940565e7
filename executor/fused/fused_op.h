// FusedOp: a node of the plan that runs a program, and FusedGroup: several that run the same one.
#pragma once
#include <memory>

#include "espalier/core/bind_context.h"
#include "espalier/executor/fused/program.h"

namespace espalier {

class FusedOp : public Op {
 public:
  FusedOp(Program program, Specs outputs)
      : Op({.kind = OpKind::pointwise, .takes_halves = true}),
        program_(std::move(program)),
        outputs_(std::move(outputs)) {}
  std::string_view name() const override { return "fused"; }
  Attributes attributes() const override { return {{"program", program_.str()}}; }
  Specs infer(const InputSpecs&) const override;
  bool can_write_over(size_t output, size_t input) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  NodeFlops cost(const NodeWork&) const override { return {.elementwise = program_.flops()}; }
  bool equals(const Op& other) const override { return this == &other; }

  const Program& program() const { return program_; }

 private:
  Program program_;
  Specs outputs_;
};

/// The same program over several sets of tensors, one after the other: inputs and outputs of the first, then
/// those of the second, and so on. All parameters of a model are updated by one of these.
class FusedGroup : public Op {
 public:
  struct Member {
    std::shared_ptr<const FusedOp> op;
    size_t inputs, outputs;
  };
  explicit FusedGroup(std::vector<Member> members);
  std::string_view name() const override { return "fused_group"; }
  Attributes attributes() const override {
    return {{"members", static_cast<int64_t>(members_.size())}, {"program", members_[0].op->program().str()}};
  }
  Specs infer(const InputSpecs& in) const override;
  bool can_write_over(size_t output, size_t input) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  NodeFlops cost(const NodeWork&) const override;
  bool equals(const Op& other) const override { return this == &other; }

  const std::vector<Member>& members() const { return members_; }

 private:
  std::vector<Member> members_;
  std::vector<std::pair<uint32_t, uint32_t>> of_output_;  // whose output, and which of its outputs
  std::vector<size_t> first_input_;                       // of each member
};

}  // namespace espalier
