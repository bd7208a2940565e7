// Kernels for collectives of ranks whose tensors one GPU can reach: in its own memory, or in that of its
// peers.
#pragma once
#include <span>

#include "espalier/executor/reduce_ranks.h"

namespace espalier::cu {

/// As many ranks as a kernel is told of.
inline constexpr int most_ranks = 64;

// All run in the current stream, and read and write 16 bytes at once where all buffers lie alike for that.

/// What espalier::reduce_ranks does on the CPU, to the same bits. Where there are weights, what is read is
/// multiplied before it is added, both rounded.
void reduce_ranks(const RankReduction& work);
/// Copies that many bytes to every address in `to`; `from` may be one of them.
void copy_to_ranks(const void* from, std::span<void* const> to, size_t bytes);
/// Multiplies `count` reals by `weight`; they become 0, whatever they were, where that is 0.
void scale(void* values, DType dtype, int64_t count, double weight);
/// Adds one to a count in device memory, and shows it to the host in page-locked memory.
void count(int64_t* count, int64_t* seen);

}  // namespace espalier::cu
