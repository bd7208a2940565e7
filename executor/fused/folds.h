// Loops of the tile interpreter: folds, gathers, and stores past the caches.
#pragma once
#include <cstring>

#include "espalier/ops/reductions/reduce.h"

namespace espalier {

using FoldRowsFunction = void (*)(int64_t rows, int64_t n, void* out, const void* in);
using FoldColumnFunction = void (*)(int64_t position, int64_t period, int64_t n, void* sums, const void* in);
using FoldAllFunction = void (*)(int64_t n, double* total, const void* in);

/// Each of `rows` rows of n elements to one. Real dtypes only.
FoldRowsFunction fold_rows_function(Fold fold, DType dtype);
/// sums[(position + i) % period] += in[i]
FoldColumnFunction fold_column_function(DType dtype);
FoldAllFunction fold_all_function(DType dtype);

/// n elements of `bytes` bytes, `stride` bytes apart.
void gather_row(int64_t n, char* to, const char* from, int64_t stride, uint32_t bytes);

/// Copies bytes with stores past the caches; other threads see them after stream_fence().
void stream_row(size_t bytes, char* to, const char* from);
void stream_fence();

}  // namespace espalier
