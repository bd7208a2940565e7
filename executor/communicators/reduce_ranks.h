// The arithmetic of reductions over ranks, for tensors of several ranks in one address space.
#pragma once
#include <optional>
#include <span>

#include "espalier/executor/communicators/collective.h"

namespace espalier {

/// Reduces elements `first` to `first + count` (excluded) of every buffer in `from`, in the order of the
/// buffers. The results go to every buffer in `to`, from its element `to_first` on. An output element may
/// overlap the input elements that it is computed from, and no others. With weights, one for each buffer in
/// `from`, it is the sum of the buffers times their weights (of reals); buffers of weight 0 are not read.
struct RankReduction {
  Reduction reduction = Reduction::sum;
  DType dtype = float32;
  std::span<const void* const> from;
  std::span<const double> weights = {};
  int64_t first = 0;
  std::span<void* const> to;
  int64_t to_first = 0;
  int64_t count = 0;
  /// Divisor of a mean; 0: the number of buffers.
  int mean_of = 0;
  /// The type of the results, if it is not `dtype`. For reals.
  std::optional<DType> result = {};
};

/// The arithmetic of a collective, without outputs and range.
RankReduction reduction_of(const Collective& call, std::span<const void* const> from);
/// What `rank` computes where every rank reads the buffers `from` of all and writes to the buffers `to`: its
/// own range; or, if all ranks receive the whole, its chunk for all of them.
RankReduction reduction_by_rank(const Collective& call, int rank, std::span<const void* const> from,
                                std::span<void* const> to);

/// Reads and writes every element once, on several threads if there are many.
void reduce_ranks(const RankReduction& work);

/// First element of a rank's chunk when `elements` are divided among `ranks`; for `rank == ranks` their end.
/// No two chunks of an aligned buffer have a cache line in common.
int64_t chunk_begin(int64_t elements, int ranks, int rank);
Collective::Range chunk(int64_t elements, int ranks, int rank);

}  // namespace espalier
