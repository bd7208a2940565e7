// FusedRows: a node of the plan that runs a program on chosen rows of tables, which are updated where they
// lie.
#pragma once
#include "espalier/core/bind_context.h"
#include "espalier/executor/fused/tile_program.h"

namespace espalier {

/// Which of a program's operands are tables.
struct ProgramTables {
  static constexpr uint32_t none = TableRows::none;
  std::vector<bool> inputs;         ///< by input of the node, without the last
  std::vector<uint32_t> of_output;  ///< by output: the input that is its table; none: a uniform value
};

/// Its inputs are those of the program, and tables that it only writes; the last has the numbers of the rows,
/// one for each row of the domain: int64, each once, and numbers outside for no row. Outputs are the tables
/// with new rows, and uniform values; written over its table, an output touches these rows alone. On the CPU.
class FusedRows : public Op {
 public:
  /// The program reads tables as full values of maps, and computes new rows by maps.
  FusedRows(Program program, ProgramTables tables);
  std::string_view name() const override { return "fused_rows"; }
  Attributes attributes() const override;
  Specs infer(const InputSpecs& in) const override;
  bool can_write_over(size_t output, size_t input) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  NodeFlops cost(const NodeWork&) const override { return {.elementwise = program_.flops()}; }
  bool equals(const Op& other) const override { return this == &other; }

  const Program& program() const { return program_; }

 private:
  Program program_;
  ProgramTables tables_;
};

}  // namespace espalier
