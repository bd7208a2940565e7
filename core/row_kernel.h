// RowKernel: a kernel that can compute its output in parts.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// A kernel whose one output can be computed in ranges of rows, by several threads: what follows reads each
/// range while it is in the caches, and no thread waits for another.
class RowKernel : public BoundKernel {
 public:
  /// How many rows a range best has, if the output is seen as so many rows and what follows takes `tile` of
  /// them at a time; 0 if it is best, or can only be, computed as a whole by `run`. Ranges are a multiple of
  /// that, rounded up to a multiple of `tile`, but for the last one.
  virtual int64_t rows_at_once(int64_t rows, int64_t tile) const = 0;
  /// Comes before the ranges of each run.
  virtual void begin_rows() {}
  /// Computes one range on the calling thread alone.
  virtual void run_rows(int64_t begin, int64_t end) = 0;
};

}  // namespace espalier
