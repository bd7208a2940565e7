#include "espalier/executor/fused/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {

bool Program::is_output(uint32_t instruction) const {
  return std::find(outputs.begin(), outputs.end(), instruction) != outputs.end();
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
    else if (n.level != Level::full)
      text += n.level == Level::row ? ":row" : ":uniform";
  }
  text += " ->";
  for (const uint32_t output : outputs) text += fmt::format(" v{}", output);
  return text;
}

}  // namespace espalier
