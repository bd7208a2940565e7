// Dividing a program in two.
#pragma once
#include <optional>
#include <vector>

#include "espalier/executor/fused/program.h"

namespace espalier {

/// Some instructions of a program as a program of their own.
struct ProgramPart {
  Program program;
  std::vector<uint32_t> inputs;  ///< those of the whole that it reads, in the order of its own
};
struct DividedProgram {
  ProgramPart first;  ///< reads an input of the whole and has one output
  ProgramPart rest;   ///< reads that output as the same input of the whole
};
/// Cuts off the chain of instructions that begins with the only reader of an input, in which each has one
/// operand that is not the chain so far: a constant, or an input for which `joins` is true. Nothing if there
/// is no such chain, or it is the whole program.
std::optional<DividedProgram> cut_off_chain(const Program& whole, uint32_t input,
                                            const std::vector<bool>& joins);

}  // namespace espalier
