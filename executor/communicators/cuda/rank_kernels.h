// Kernels of collectives, for tensors that one GPU can access: in its own memory or in that of its peers.
#pragma once
#include <span>

#include "espalier/executor/communicators/reduce_ranks.h"

namespace espalier::cu {

/// The buffers that fit in the arguments of a kernel.
inline constexpr int most_ranks = 64;

// All run in the current stream, and access 16 bytes at once if all buffers have the same alignment.

/// The same as espalier::reduce_ranks on the CPU, with the same bits: products with weights are rounded
/// before they are added.
void reduce_ranks(const RankReduction& work);
/// Copies `bytes` bytes to every address in `to`, which may contain `from`.
void copy_to_ranks(const void* from, std::span<void* const> to, size_t bytes);
/// Multiplies `count` reals by `weight`; a weight of 0 sets all to 0, NaN too.
void scale(void* values, DType dtype, int64_t count, double weight);
/// Increments a count in device memory, and copies it to `seen` in page-locked memory of the host.
void count(int64_t* count, int64_t* seen);

}  // namespace espalier::cu
