// The CUDA kernel of a fused program, as text that is compiled at run time. Writing it does not need CUDA.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "espalier/executor/fused/program.h"

namespace espalier {

/// What a kernel's text depends on: of the address only its alignment.
struct FusedTensor {
  DType dtype;
  Layout layout;
  int64_t alignment = 16;  ///< of its first element, in bytes: a power of two, at most 16
};

struct FusedTensors {
  std::vector<FusedTensor> inputs, outputs;
  bool in_place = false;  ///< an output overlaps an input
};

/// The size of a launch, and of the memory it needs beside its tensors.
struct FusedLaunch {
  int64_t blocks;
  int64_t chunks = 0;    ///< parts of the rows, whose sums are combined at the end
  int64_t stage = 0;     ///< chunks that the first stage of combining adds up
  int64_t counters = 0;  ///< unsigned ints; 0 between launches
};

/// A kernel's text and calling convention. Its one parameter is a struct of 8-byte fields: the addresses of
/// `inputs`, of all outputs, and then
///   the number of columns, where `flat`, or of rows;
///   if it has folds over rows: an address for the partial sums of each of `column_bytes`, one for `totals`
///   doubles a block, one for counters, and FusedLaunch::stage.
/// The kernel of a group gets two addresses instead: of such structs, one for each member, and of
/// FusedBlocks. Members' structs end with an address for `totals` doubles a block and one for two counters,
/// on which a member's blocks synchronize.
struct FusedSource {
  std::string name;  ///< of the kernel: "fused_multiply_add_tanh"
  std::string text;
  std::vector<uint32_t> inputs;  ///< of the program, that the kernel reads
  int64_t threads = 0;           ///< in a block
  bool flat = false;
  int64_t rows = 0, columns = 0;
  int64_t tile = 0;                   ///< flat: elements of a block's tile; else its columns
  int64_t tiles = 1;                  ///< over the columns
  int64_t chunk_rows = 1;             ///< rows that the blocks along a row compute at once
  int64_t width = 0;                  ///< elements in a row of partial sums
  std::vector<int64_t> column_bytes;  ///< of an element of each
  int64_t totals = 0;
  bool last_block = false;  ///< the last block to finish combines the results of all

  bool counts_reads = false;  ///< of a group: outputs of one element are written after all blocks have read

  bool has_finals() const { return last_block || !column_bytes.empty(); }
  /// Enough blocks to keep a device busy.
  FusedLaunch launch(int64_t multiprocessors) const;
};

/// A block of a group's kernel: tiles [begin, end) of one member. It is number `number` of its `count`
/// blocks.
struct FusedBlock {
  uint32_t member, begin, end, number, count;
};

FusedSource fused_source(const Program& program, const FusedTensors& tensors);
/// The kernel of a member of a FusedGroup, which members with equal texts share. Empty if it cannot be
/// shared: that needs contiguous tensors, and no folds but over the whole domain. `wide` selects 64-bit
/// indices.
std::optional<FusedSource> fused_group_source(const Program& program, const FusedTensors& tensors, bool wide);

}  // namespace espalier
