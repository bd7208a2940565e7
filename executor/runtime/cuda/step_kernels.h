// The first and last kernels of a step on a GPU: one copies the batch, one records the loss and advances
// counters.
#pragma once
#include <cstdint>

#include "espalier/core/tensor.h"

namespace espalier::cu {

/// The counters of a session, in device memory. Kernels read them there, so that captured steps stay valid.
struct StepState {
  uint64_t seed, first_stream;  ///< of the random numbers of the step
  uint64_t steps;               ///< taken so far
};

/// Of how many steps the losses are kept, with so many numbers each.
constexpr int64_t losses_kept(int64_t numbers) {
  constexpr int64_t most = 1024, least = 16, all = int64_t{1} << 20;
  return numbers >= all / least ? least : numbers <= all / most ? most : all / numbers;
}

/// The columns of a feed in device memory, and the rows of the next batch: those from `order[*cursor]` on.
struct ShownColumn {
  const char* from;
  char* to;
  int64_t row_bytes;
};
inline constexpr int most_columns = 8;
struct ShownBatch {
  ShownColumn columns[most_columns];
  int count;
  const int64_t* order;
  const int64_t* cursor;
  int64_t rows;
};
/// Copies the rows of a batch into the plan's sources.
void show_batch(const ShownBatch& batch);

inline constexpr int most_feeds = 8;
struct StepEnd {
  StepState* state;
  double* losses;  ///< a ring of `kept` times `numbers`, of which the first is the loss
  int64_t kept;
  int64_t numbers;
  int64_t streams;
  int64_t* cursors[most_feeds];  ///< of shown feeds, to be advanced by `rows`
  int64_t rows[most_feeds];
  int feeds;
};
/// Records the elements of `value`, which is contiguous, as numbers of this step: from `position` on, where
/// the loss is 0.
void record_elements(const Tensor& value, int64_t position, const StepEnd& end);
/// Sums the elements of `loss`, which is contiguous, records the sum for this step, and advances all
/// counters.
void end_step(const Tensor& loss, const StepEnd& end);

}  // namespace espalier::cu
