// The tile interpreter: runs a program on the CPU in tiles that stay in the first caches, one vectorized loop
// for each instruction.
#pragma once
#include <array>
#include <vector>

#include "espalier/executor/fused/program.h"

namespace espalier {

/// A program bound to tensors. Full inputs may have any strides; outputs are contiguous.
class TileKernel {
 public:
  TileKernel(const Program& program, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs);

  TileKernel(TileKernel&&) = default;  // steps point into what moves along, and would not into a copy
  TileKernel(const TileKernel&) = delete;

  int64_t tiles() const { return tiles_; }
  /// What one tile costs, in elements times instructions.
  int64_t tile_cost() const { return tile_cost_; }
  /// Rows of the domain, and how many whole ones make a tile; 0 if a row is more than a tile.
  int64_t rows() const { return rows_; }
  int64_t row_tiles() const { return pieces_ == 1 ? tile_rows_ : 0; }
  /// Memory that a thread needs for itself.
  size_t scratch_bytes() const { return scratch_bytes_; }

  /// Uniform values, before all tiles.
  void begin();
  /// What a thread does first with its scratch, before its tiles.
  void clear(char* scratch) const;
  void run_tile(int64_t tile, char* scratch) const;
  /// Folds over the whole domain and uniform outputs, after all tiles. `scratches` are those of all threads.
  void finish(std::span<char* const> scratches);

 private:
  /// Where a step finds or puts a value: at base + row · row_stride + column · column_stride, in bytes; in
  /// scratch, `offset` from its start.
  struct Location {
    char* base = nullptr;
    size_t offset = 0;
    int64_t row_stride = 0, column_stride = 0;
    int64_t step = 1;  ///< between elements; 0 for one that is repeated
    int32_t vreg = -1;
    char* at(int64_t row, int64_t column, char* scratch) const {
      return base ? base + row * row_stride + column * column_stride : scratch + offset;
    }
  };
  using FoldRows = void (*)(int64_t rows, int64_t n, void* out, const void* in);
  using FoldColumn = void (*)(int64_t position, int64_t period, int64_t n, void* sums, const void* in);
  using FoldAll = void (*)(int64_t n, double* total, const void* in);
  struct Step {
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
      stream
    };
    Kind kind;
    Level level;
    uint32_t bytes = 0;  ///< of an element of the result
    RowFunction function = {};
    UnaryRow whole_row = nullptr;
    FoldRows fold_row = nullptr;
    FoldColumn fold_column = nullptr;
    FoldAll fold_all = nullptr;
    int64_t period = 0;
    uint32_t gather = 0;
    std::array<Location, 3> in = {};
    Location out = {};
  };
  /// Elements of an input in the order of the domain, where they do not lie so.
  struct Gather {
    const char* base;
    Dims sizes, strides;  ///< strides in bytes
  };
  struct Register {
    size_t bytes;  ///< of an element
    Level level;
    int64_t first, last;
  };
  struct Source {  ///< an input as one shape sees it
    uint32_t input;
    Level level;
    Shape shape;
    Location location;
  };

  struct Collapsed {
    Dims sizes, strides;
  };
  static Collapsed collapse(const Layout& layout);
  void choose_tiles(std::span<const Tensor* const> inputs);
  Location load(uint32_t input, Level level, const Shape& shape);
  Location operand(const Argument& operand, const Instruction& by);
  Location spread(const Location& row_value, size_t bytes);
  Location side_by_side(const Argument& operand, const Instruction& by);
  int32_t new_register(size_t bytes, Level level);
  Location in_register(int32_t vreg);
  void emit(Step step);
  void emit(const Instruction& instruction, uint32_t index);
  void emit_uniform(const Instruction& instruction, uint32_t index);
  void write_outputs();
  void place_registers();
  size_t operand_bytes(const Argument& operand) const;
  static void run_step(const Step& step, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       char* scratch);
  static void run_gather(const Gather& gather, int64_t begin, int64_t count, uint32_t bytes, char* to);

  Program program_;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  int64_t rows_ = 1, columns_ = 1;  // the domain as tiles see it
  int64_t tile_rows_ = 1, tile_columns_ = 1, pieces_ = 1;
  int64_t tiles_ = 0, tile_cost_ = 0;
  std::vector<Step> uniform_steps_, steps_;
  std::vector<Gather> gathers_;
  std::vector<Register> registers_;
  std::vector<Source> sources_;
  std::vector<Location> values_;                       // of each instruction
  std::vector<std::pair<int32_t, Location>> spreads_;  // of row registers
  std::vector<std::array<char, 8>> uniforms_;          // constants, then uniform values
  struct Total {
    uint32_t instruction;
    size_t output;
    size_t offset, bytes;  // in the scratch
  };
  std::vector<Total> totals_;
  size_t scratch_bytes_ = 0;
  size_t totals_begin_ = 0;
};

/// How many threads are worth it.
int64_t threads_for_tiles(int64_t cost, int64_t tiles);

/// Memory of each thread for its tiles.
class TileScratch {
 public:
  TileScratch() = default;
  TileScratch(size_t bytes, int64_t threads);
  char* of(int64_t thread) const { return parts_[static_cast<size_t>(thread)]; }
  std::span<char* const> all() const { return parts_; }

 private:
  Tensor memory_;
  std::vector<char*> parts_;
};

/// One or several of them, run together over all threads.
std::unique_ptr<BoundKernel> bind_tiles(std::vector<TileKernel> kernels);

}  // namespace espalier
