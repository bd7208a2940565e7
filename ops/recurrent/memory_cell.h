// The memory cell of an LSTM, or of a node of a tree, as one op.
#pragma once
#include <algorithm>
#include <span>

#include "espalier/core/node.h"

namespace espalier {

/// With gates i, o, f_1 … f_N and g, in this order: c = σ(i)·tanh(g) + Σ σ(f_k)·c_k, h = σ(o)·tanh(c).
/// Hochreiter and Schmidhuber, Long short-term memory, 1997, for N = 1; Tai, Socher and Manning, Improved
/// semantic representations from tree-structured long short-term memory networks, 2015.
struct MemoryCellForm {
  int64_t width;         ///< units
  int64_t memories = 1;  ///< N
  /// For each summand of the gates' pre-activations, and in it for each gate: which block of `width` columns
  /// of the summand is a part of that gate, or −1. Every gate has one.
  SmallVector<int64_t, 20> blocks;

  static constexpr int64_t most_memories = 8, most_summands = 16, most_blocks = 101;
  int64_t gates() const { return 3 + memories; }
  int64_t summands() const { return static_cast<int64_t>(blocks.size()) / gates(); }
  int64_t block(int64_t summand, int64_t gate) const {
    return blocks[static_cast<size_t>(summand * gates() + gate)];
  }
  bool same_blocks(int64_t summand, int64_t other) const {
    const auto blocks_of = [this](int64_t p) { return blocks.begin() + p * gates(); };
    return std::equal(blocks_of(summand), blocks_of(summand) + gates(), blocks_of(other));
  }
  friend bool operator==(const MemoryCellForm&, const MemoryCellForm&) = default;
};

struct MemoryStates {
  Variable h, c;
};

/// Summands are [..., blocks · width], or [blocks · width] for all rows, and memories [..., width], of one
/// real dtype. The op has at most `most_memories` and `most_summands` of them. Throws ShapeError, TypeError
/// or Error for others.
MemoryStates memory_cell(const MemoryCellForm& form, std::span<const Variable> summands,
                         std::span<const Variable> memories);
/// The same written with elementary ops, for any number of memories.
MemoryStates composed_memory_cell(const MemoryCellForm& form, std::span<const Variable> summands,
                                  std::span<const Variable> memories);
/// The one of both that suits: elementary ops downstream of feeds, where plans fuse them themselves, and for
/// many memories.
MemoryStates next_memory(const MemoryCellForm& form, std::span<const Variable> summands,
                         std::span<const Variable> memories);

}  // namespace espalier
