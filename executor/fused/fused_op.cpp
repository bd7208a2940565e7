#include "espalier/executor/fused/fused_op.h"

#include "espalier/executor/fused/interpreter.h"

namespace espalier {

Specs FusedOp::infer(const InputSpecs&) const {
  Specs specs;
  specs.append(outputs_.begin(), outputs_.end());
  return specs;
}

/// A tile reads its elements before it writes them, so reader and writer must use the same elements.
bool FusedOp::can_write_over(size_t output, size_t input) const {
  const Instruction& writer = program_.instructions[program_.outputs[output]];
  if (writer.kind != Instruction::Kind::map && writer.kind != Instruction::Kind::whole_row) return false;
  if (writer.extent == Extent::uniform) return true;  // written after all has been read
  for (const Instruction& n : program_.instructions)
    for (const Argument& operand : n.arguments) {
      if (operand.from != Argument::From::input || operand.index != input) continue;
      if (operand.extent != writer.extent || n.shape.elements() != outputs_[output].shape.elements())
        return false;
    }
  return true;
}

std::unique_ptr<BoundKernel> FusedOp::bind_cpu(const KernelCall& call, const BindContext&) const {
  std::vector<TileKernel> kernels;
  kernels.emplace_back(program_, std::span(call.inputs.data(), call.inputs.size()),
                       std::span(call.outputs.data(), call.outputs.size()));
  return bind_tiles(std::move(kernels));
}

FusedGroup::FusedGroup(std::vector<Member> members)
    : Op({.kind = OpKind::pointwise, .takes_halves = true}), members_(std::move(members)) {
  size_t input = 0;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    first_input_.push_back(input);
    input += members_[m].inputs;
    for (uint32_t k = 0; k < members_[m].outputs; ++k) of_output_.emplace_back(m, k);
  }
}

Specs FusedGroup::infer(const InputSpecs& in) const {
  Specs specs;
  for (const Member& member : members_)
    for (const Spec& spec : member.op->infer(in)) specs.push_back(spec);
  return specs;
}

bool FusedGroup::can_write_over(size_t output, size_t input) const {
  const auto [owner, own_output] = of_output_[output];
  const size_t first = first_input_[owner];
  // Inputs of other members may be shared.
  return input >= first && input < first + members_[owner].inputs &&
         members_[owner].op->can_write_over(own_output, input - first);
}

NodeFlops FusedGroup::cost(const NodeWork&) const {
  NodeFlops flops;
  for (const Member& member : members_) flops.elementwise += member.op->program().flops();
  return flops;
}

std::unique_ptr<BoundKernel> FusedGroup::bind_cpu(const KernelCall& call, const BindContext&) const {
  std::vector<TileKernel> kernels;
  size_t input = 0, output = 0;
  for (const Member& member : members_) {
    kernels.emplace_back(member.op->program(), std::span(call.inputs.data() + input, member.inputs),
                         std::span(call.outputs.data() + output, member.outputs));
    input += member.inputs;
    output += member.outputs;
  }
  return bind_tiles(std::move(kernels));
}

}  // namespace espalier
