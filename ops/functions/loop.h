// Loops over sequences as one operation.
#pragma once
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

struct ScanResult {
  std::vector<Variable> state;    ///< of a step: the next one; of a scan: behind the last step
  std::vector<Variable> outputs;  ///< of a step; of a scan: those of all steps, along a new first axis
};
/// A step: the next state and any outputs, from the state and the elements of the sequences.
using ScanStep =
    std::function<ScanResult(const std::vector<Variable>& state, const std::vector<Variable>& elements)>;

struct ScanOptions {
  bool reverse = false;  ///< from the last element to the first; outputs stand where their elements do
  /// Gradients keep the state in front of each step, and compute the step again. With s > 0 they keep it in
  /// front of every s-th step alone, and compute the s steps again: for n steps, s = √n keeps the fewest. A
  /// plan with a `memory_budget` does so without being told.
  /// Griewank, Achieving logarithmic growth of temporal and spatial complexity, 1992.
  int64_t segment = 0;
};
/// Runs `step` along the first axis of the sequences, of which there is at least one, all of one length. The
/// step is called once, to write it down; it may use any Variables beside its operands, and gradients of any
/// order reach them. It is written with operations alone: UnsupportedError for reading a value that depends
/// on an operand, in the step or later, for assignments and `in_train_phase`, and for more than 16 loops in
/// each other. Random numbers, as of dropout, are drawn anew in each step: those that the steps written out
/// one by one would draw. What is drawn outside, such as a mask, is the same in all steps. States keep their
/// shapes and dtypes. A plan runs the same kernels for each step, bound once, so that its size does not
/// depend on the length. Throws Error, ShapeError, TypeError. Replicas share out a batch that is along
/// another axis than the steps, unless the step draws random numbers for its rows (UnsupportedError).
ScanResult scan(const ScanStep& step, const std::vector<Variable>& state,
                const std::vector<Variable>& sequences, const ScanOptions& options = {},
                std::source_location where = std::source_location::current());

}  // namespace espalier
