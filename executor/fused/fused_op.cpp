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

Specs FusedGroup::infer(const InputSpecs& in) const {
  Specs specs;
  for (const Member& member : members_)
    for (const Spec& spec : member.op->infer(in)) specs.push_back(spec);
  return specs;
}

bool FusedGroup::can_write_over(size_t output, size_t input) const {
  for (const Member& member : members_) {
    if (output < member.outputs)
      return input < member.inputs ? member.op->can_write_over(output, input) : false;
    output -= member.outputs;
    if (input < member.inputs) return false;  // an earlier member's input, which others may share
    input -= member.inputs;
  }
  return false;
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
