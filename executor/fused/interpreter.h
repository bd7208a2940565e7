// The tile interpreter: runs a program on the CPU in tiles that stay in the first caches, one vectorized loop
// for each instruction.
#pragma once
#include "espalier/executor/fused/tile_program.h"

namespace espalier {

/// A program bound to tensors.
class TileKernel {
 public:
  TileKernel(const Program& program, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs,
             const TableRows* tables = nullptr)
      : tiles_(lower_to_tiles(program, inputs, outputs, tables)) {}

  TileKernel(TileKernel&&) = default;  // steps point into vectors, whose elements a move leaves in place
  TileKernel(const TileKernel&) = delete;

  int64_t tiles() const { return tiles_.tiles; }
  /// The cost of one tile, in elements times instructions.
  int64_t tile_cost() const {
    return tiles_.tile_rows * tiles_.tile_columns * static_cast<int64_t>(tiles_.steps.size());
  }
  /// Rows of the domain, and how many whole ones make a tile; 0 if a row is more than a tile.
  int64_t rows() const { return tiles_.rows; }
  int64_t row_tiles() const { return tiles_.tiles_per_row == 1 ? tiles_.tile_rows : 0; }
  /// Scratch of each thread.
  size_t scratch_bytes() const { return tiles_.scratch_bytes; }

  /// Computes uniform values. Comes before all tiles.
  void begin();
  /// Clears a thread's sums. Comes before its tiles.
  void clear(char* scratch) const;
  void run_tile(int64_t tile, char* scratch) const { run_tile_of(tile, 0, tiles_.rows, scratch); }
  /// A tile of some rows of the domain, from `begin` to `end`.
  void run_tile_of(int64_t tile, int64_t begin, int64_t end, char* scratch) const;
  int64_t tiles_of(int64_t rows) const {
    return (rows + tiles_.tile_rows - 1) / tiles_.tile_rows * tiles_.tiles_per_row;
  }
  /// Adds up the threads' folds over the domain and writes uniform outputs. Comes after all tiles.
  void finish(std::span<char* const> scratches);

 private:
  static void run_step(const TileStep& step, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       char* scratch);
  static void run_take(const TileTable& table, const int64_t* rows, int64_t count, int64_t until,
                       int64_t column, int64_t bytes, char* to);
  static void run_put(const TileTable& table, const int64_t* rows, int64_t count, int64_t column,
                      int64_t bytes, const char* from);
  static void run_gather(const TileGather& gather, int64_t begin, int64_t count, uint32_t bytes, char* to);

  TileProgram tiles_;
};

/// The number of threads that so much work pays for.
int64_t threads_for_tiles(int64_t cost, int64_t tiles);

/// The scratch of each thread.
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

/// Runs one or several kernels together over all threads.
std::unique_ptr<BoundKernel> bind_tiles(std::vector<TileKernel> kernels);

}  // namespace espalier
