#include "espalier/executor/fused/program_parts.h"

#include <algorithm>

namespace espalier {

namespace {

using From = Argument::From;

/// The only reader of an input or a value, which reads it once.
std::optional<uint32_t> only_reader(const Program& program, From from, uint32_t index) {
  std::optional<uint32_t> reader;
  for (uint32_t i = 0; i < program.instructions.size(); ++i)
    for (const Argument& argument : program.instructions[i].arguments) {
      if (argument.from != from || argument.index != index) continue;
      if (reader) return std::nullopt;
      reader = i;
    }
  return reader;
}

/// The instructions for which `keeps` is true; what they read as value `cut` is input `instead`.
ProgramPart part_of(const Program& whole, const std::vector<bool>& keeps, uint32_t cut, uint32_t instead,
                    const std::vector<uint32_t>& outputs) {
  ProgramPart part{whole, {}};
  part.program.instructions.clear();
  part.program.outputs.clear();
  std::vector<uint32_t> number(whole.instructions.size());
  for (uint32_t i = 0; i < whole.instructions.size(); ++i) {
    if (!keeps[i]) continue;
    number[i] = static_cast<uint32_t>(part.program.instructions.size());
    Instruction n = whole.instructions[i];
    for (Argument& argument : n.arguments) {
      if (argument.from == From::value && !keeps[argument.index] && argument.index == cut)
        argument = {From::input, instead, argument.extent};
      if (argument.from == From::value) argument.index = number[argument.index];
      if (argument.from != From::input) continue;
      const auto known = std::ranges::find(part.inputs, argument.index);
      const auto at = static_cast<uint32_t>(known - part.inputs.begin());
      if (known == part.inputs.end()) part.inputs.push_back(argument.index);
      argument.index = at;
    }
    part.program.instructions.push_back(std::move(n));
  }
  for (const uint32_t output : outputs) part.program.outputs.push_back(number[output]);
  return part;
}

}  // namespace

std::optional<DividedProgram> cut_off_chain(const Program& whole, uint32_t input,
                                            const std::vector<bool>& joins) {
  std::vector<bool> in_chain(whole.instructions.size(), false);
  std::optional<uint32_t> last;
  auto next = only_reader(whole, From::input, input);
  while (next && !(last && whole.is_output(*last))) {
    const Instruction& n = whole.instructions[*next];
    const bool joined = std::ranges::all_of(n.arguments, [&](const Argument& a) {
      const bool so_far =
          last ? a.from == From::value && a.index == *last : a.from == From::input && a.index == input;
      return so_far || a.from == From::constant || (a.from == From::input && joins[a.index]);
    });
    if (n.kind != Instruction::Kind::map || n.extent != Extent::full || !joined) break;
    in_chain[*next] = true;
    last = next;
    next = only_reader(whole, From::value, *last);
  }
  if (!last || whole.is_output(*last)) return std::nullopt;
  if (!only_reader(whole, From::value, *last)) return std::nullopt;
  std::vector<bool> others = in_chain;
  others.flip();
  return DividedProgram{part_of(whole, in_chain, 0, 0, {*last}),
                        part_of(whole, others, *last, input, whole.outputs)};
}

}  // namespace espalier
