#include "espalier/executor/fused/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {

bool Program::is_output(uint32_t instruction) const {
  return std::find(outputs.begin(), outputs.end(), instruction) != outputs.end();
}

double Program::flops() const {
  double flops = 0;
  const auto domain = static_cast<double>(elements);
  for (const Instruction& n : instructions) {
    if (n.kind != Instruction::Kind::map || n.extent == Extent::full)
      flops += domain;
    else
      flops += n.extent == Extent::row ? domain / static_cast<double>(row) : 1;
  }
  return flops;
}

std::string Program::str() const {
  std::string text;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& n = instructions[i];
    text += fmt::format("{}v{} = {}(", i ? "; " : "", i, n.op->name());
    for (size_t k = 0; k < n.arguments.size(); ++k) {
      const Argument& operand = n.arguments[k];
      if (k) text += ", ";
      if (operand.from == Argument::From::constant)
        text += fmt::format("{}", constants[operand.index].value);
      else
        text += fmt::format("{}{}", operand.from == Argument::From::input ? 'i' : 'v', operand.index);
    }
    text += ')';
    if (n.kind == Instruction::Kind::fold_column)
      text += ":column";
    else if (n.kind == Instruction::Kind::fold_all)
      text += ":all";
    else if (n.extent != Extent::full)
      text += n.extent == Extent::row ? ":row" : ":uniform";
  }
  text += " ->";
  for (const uint32_t output : outputs) text += fmt::format(" v{}", output);
  return text;
}

}  // namespace espalier
