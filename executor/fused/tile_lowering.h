// TileLowering: from the instructions of a program to the steps of its tiles.
#pragma once
#include "espalier/executor/fused/tile_program.h"

namespace espalier {

class TileLowering {
 public:
  TileLowering(const Program& program, std::span<const Tensor* const> inputs,
               std::span<Tensor* const> outputs, const TableRows* tables);
  TileProgram run();

 private:
  /// A virtual register: a value of a tile, which is live from its first step to its last.
  struct Register {
    size_t bytes;  ///< of an element; 0 if it lies in an output
    Extent extent;
    int64_t first, last;
  };
  struct Source {  ///< an input as one shape reads it
    uint32_t input;
    Extent extent;
    Shape shape;
    TileLocation location;
  };

  void choose_tiles();
  TileLocation load(uint32_t input, Extent extent, const Shape& shape);
  TileLocation take(const Tensor& table);
  TileStep table_step(TileStep::Kind kind, const Tensor& table);
  void put_early(uint32_t instruction);
  void put(size_t output);
  TileLocation operand(const Argument& operand, const Instruction& by);
  TileLocation spread(const TileLocation& row_value, size_t bytes);
  TileLocation side_by_side(const Argument& operand, const Instruction& by);
  size_t operand_bytes(const Argument& operand) const;
  TileLocation new_register(size_t bytes, Extent extent);
  void emit(TileStep step);
  void lower(const Instruction& instruction, uint32_t index);
  void lower_map(const Instruction& instruction, uint32_t index);
  void lower_uniform(const Instruction& instruction, uint32_t index);
  void lower_total(const Instruction& instruction, uint32_t index);

  // in tile_registers.cpp
  void write_outputs();
  bool is_overwritten_early(size_t output) const;
  void place_registers();
  std::vector<size_t> register_offsets(size_t& end) const;

  const Program& program_;
  std::span<const Tensor* const> inputs_;
  const TableRows* tables_;
  std::vector<bool> is_put_;  // by output
  TileProgram tiles_;
  std::vector<Register> registers_;
  std::vector<Source> sources_;
  std::vector<TileLocation> values_;                       // of each instruction
  std::vector<std::pair<int32_t, TileLocation>> spreads_;  // of row registers
};

}  // namespace espalier
