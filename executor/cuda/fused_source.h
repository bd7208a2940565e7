// The CUDA kernel of a fused program, as text that is compiled at run time. Nothing of CUDA is needed to make
// it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "espalier/executor/fused/program.h"

namespace espalier {

/// A tensor as a kernel meets it. Where it lies does not matter, but for how well it is aligned.
struct FusedTensor {
  DType dtype;
  Layout layout;
  int64_t alignment = 16;  ///< of its first element, in bytes: a power of two, at most 16
};

struct FusedTensors {
  std::vector<FusedTensor> inputs, outputs;
  bool in_place = false;  ///< an output lies where an input does
};

/// A launch: how many blocks, and what the kernel needs beside its tensors.
struct FusedLaunch {
  int64_t blocks;
  int64_t chunks = 0;    ///< shares of the rows whose sums are combined at the end
  int64_t stage = 0;     ///< how many of them are combined first
  int64_t counters = 0;  ///< unsigned ints, which are 0 between launches
};

/// A kernel's text, and how it is called. Its one parameter is a struct of 8-byte fields: the addresses of
/// `inputs`, of all outputs, and then
///   the number of columns, where `flat`, or of rows;
///   where something is folded over rows: an address for the partial sums of each of `column_bytes`, one for
///   `totals` doubles a block, one for counters, and FusedLaunch::stage.
/// The kernel of a group gets two addresses instead: of such structs, one for each member, and of
/// FusedBlocks. Members' structs end with an address for `totals` doubles a block and one for two counters,
/// where blocks of a member meet.
struct FusedSource {
  std::string text;
  std::vector<uint32_t> inputs;  ///< of the program: those which the kernel reads
  int64_t threads = 0;           ///< in a block
  bool flat = false;
  int64_t rows = 0, columns = 0;
  int64_t tile = 0;                   ///< flat: elements that a block computes at once; else columns
  int64_t tiles = 1;                  ///< over the columns
  int64_t chunk_rows = 1;             ///< rows that the blocks side by side compute at once
  int64_t width = 0;                  ///< elements in a row of partial sums
  std::vector<int64_t> column_bytes;  ///< of an element of each
  int64_t totals = 0;
  bool last_block = false;  ///< some block ends the work of all

  bool counts_reads = false;  ///< a group's: outputs of one element are written once all blocks have read

  bool has_finals() const { return last_block || !column_bytes.empty(); }
  /// Enough blocks to keep a device busy.
  FusedLaunch launch(int64_t multiprocessors) const;
};

/// What a block of a group's kernel computes: tiles of one member. It is the block `number` of `count`.
struct FusedBlock {
  uint32_t member, begin, end, number, count;
};

FusedSource fused_source(const Program& program, const FusedTensors& tensors);
/// The kernel for members of a FusedGroup, if this one can be one of them: its elements lie in order, and it
/// folds nothing but all of them. Members with equal texts share a kernel; `wide` makes it count in 64 bits.
std::optional<FusedSource> fused_group_source(const Program& program, const FusedTensors& tensors, bool wide);

}  // namespace espalier
