// The arithmetic of reductions over ranks, for tensors of several ranks in one memory.
#pragma once
#include <optional>
#include <span>

#include "espalier/executor/collective.h"

namespace espalier {

/// Elements `first` to `first + count` (excluded) of every buffer in `from` are reduced, in the order of the
/// buffers. The results go to every buffer in `to`, from its element `to_first` on; buffers may be in both if
/// `to_first` is `first`. With weights, one for each buffer in `from`, it is the sum of the buffers times
/// their weights (of reals), and those of weight 0 are not read.
struct RankReduction {
  Reduction reduction = Reduction::sum;
  DType dtype = float32;
  std::span<const void* const> from;
  std::span<const double> weights = {};
  int64_t first = 0;
  std::span<void* const> to;
  int64_t to_first = 0;
  int64_t count = 0;
  /// How many values a mean is of; 0: as many as there are buffers.
  int mean_of = 0;
  /// What the results are rounded to, if not to `dtype`. For reals.
  std::optional<DType> result = {};
};

/// Reads and writes every element once. On several threads where it is long enough.
void reduce_ranks(const RankReduction& work);

/// Where the share of a rank begins when `ranks` of them divide `elements` among them, and where it ends when
/// asked for the next rank. No two ranks write to one cache line of an aligned buffer.
int64_t share_begin(int64_t elements, int ranks, int rank);

}  // namespace espalier
