// TileProgram: a program bound to tensors, as a list of vectorized loops over tiles that stay in the first
// caches.
#pragma once
#include <array>
#include <vector>

#include "espalier/executor/fused/folds.h"
#include "espalier/executor/fused/program.h"

namespace espalier {

/// The address of a value: base + row · row_stride + column · column_stride, in bytes. Without a base it is
/// `offset` bytes into the thread's scratch.
struct TileLocation {
  char* base = nullptr;
  size_t offset = 0;
  int64_t row_stride = 0, column_stride = 0;
  int64_t step = 1;   ///< between elements; 0 for one repeated element
  int32_t vreg = -1;  ///< the virtual register, or -1
  char* at(int64_t row, int64_t column, char* scratch) const {
    return base ? base + row * row_stride + column * column_stride : scratch + offset;
  }
};

/// Which operands are tables, of which a program reads and writes chosen rows.
struct TableRows {
  const int64_t* rows;            ///< of each row of the domain, each once
  int64_t columns;                ///< elements of a row
  std::vector<bool> inputs;       ///< by input
  std::vector<uint32_t> outputs;  ///< by output: the input that is its table; none: a uniform value
  static constexpr uint32_t none = UINT32_MAX;
};

/// One loop over a tile.
struct TileStep {
  enum class Kind : uint8_t {
    unary,
    binary,
    ternary,
    whole_row,
    fold_row,
    fold_column,
    fold_all,
    gather,
    spread,
    fill,
    copy,
    stream,
    take,  ///< rows out of a table
    put    ///< rows back
  };
  Kind kind;
  Extent extent;
  uint32_t bytes = 0;  ///< of an element of the result
  RowFunction function = {};
  UnaryRow whole_row = nullptr;
  FoldRowsFunction fold_row = nullptr;
  FoldColumnFunction fold_column = nullptr;
  FoldAllFunction fold_all = nullptr;
  int64_t period = 0;
  uint32_t index = 0;  ///< of the gather, table or total
  std::array<TileLocation, 3> in = {};
  TileLocation out = {};
};

/// The elements of an input in the order of the domain, for layouts that no stride describes.
struct TileGather {
  const char* base;
  Dims sizes, strides;  ///< strides in bytes
};

/// A table, of which each row of the domain is one.
struct TileTable {
  char* base;
  int64_t row_bytes;
};

/// A fold over the domain: each thread folds its tiles into its scratch, and the results are added up.
struct TileTotal {
  size_t output;
  Fold fold;
  DType dtype;
  int64_t elements;   ///< of the result
  bool by_column;     ///< a sum for each column; otherwise one
  size_t offset = 0;  ///< in the scratch
  /// Sums are doubles: columns are long, and their elements are added one after the other.
  size_t scratch_bytes() const { return sizeof(double) * static_cast<size_t>(by_column ? elements : 1); }
};

struct TileProgram {
  int64_t elements = 0;           ///< of the domain
  int64_t rows = 1, columns = 1;  ///< of the domain as tiles divide it
  int64_t tile_rows = 1, tile_columns = 1;
  int64_t tiles_per_row = 1;  ///< above 1 only if a tile is less than a row
  int64_t tiles = 0;
  std::vector<TileStep> uniform_steps;  ///< before all tiles
  std::vector<TileStep> steps;          ///< of each tile
  std::vector<TileGather> gathers;
  const int64_t* table_rows = nullptr;  ///< by row of the domain
  std::vector<TileTable> tables;
  std::vector<TileTotal> totals;
  std::vector<std::array<char, 8>> uniforms;  ///< constants, then uniform values; locations point into it
  std::vector<std::pair<size_t, size_t>> uniform_outputs;  ///< outputs that are such values
  std::vector<Tensor*> outputs;
  size_t scratch_bytes = 0;
  size_t totals_begin = 0;  ///< in the scratch
};

/// Chooses tiles and lowers each instruction to steps. Full inputs may have any strides; outputs, and tables,
/// are contiguous.
TileProgram lower_to_tiles(const Program& program, std::span<const Tensor* const> inputs,
                           std::span<Tensor* const> outputs, const TableRows* tables = nullptr);

}  // namespace espalier
