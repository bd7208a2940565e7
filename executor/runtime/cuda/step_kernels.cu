#include "espalier/executor/runtime/cuda/step_kernels.h"

#include "espalier/core/cuda/launch.h"

namespace espalier::cu {

namespace {

/// Copies rows in words of type Piece.
template <class Piece>
__device__ void show_rows(const ShownColumn& column, const int64_t* order, int64_t rows) {
  const int64_t pieces = column.row_bytes / static_cast<int64_t>(sizeof(Piece));
  const Piece* from = reinterpret_cast<const Piece*>(column.from);
  Piece* to = reinterpret_cast<Piece*>(column.to);
  for (int64_t i = grid_thread(); i < rows * pieces; i += grid_threads()) {
    const int64_t row = i / pieces;
    to[i] = from[order[row] * pieces + (i - row * pieces)];
  }
}

__global__ void show_batch_kernel(const ShownBatch batch) {
  const int64_t* order = batch.order + *batch.cursor;
  for (int c = 0; c < batch.count; ++c) {
    const ShownColumn& column = batch.columns[c];
    const auto alignment = reinterpret_cast<uint64_t>(column.from) | reinterpret_cast<uint64_t>(column.to) |
                           static_cast<uint64_t>(column.row_bytes);
    if (alignment % 16 == 0)
      show_rows<int4>(column, order, batch.rows);
    else if (alignment % 4 == 0)
      show_rows<int>(column, order, batch.rows);
    else
      show_rows<char>(column, order, batch.rows);
  }
}

constexpr int end_threads = 256;

/// Runs in one block. Partial sums are added in a fixed order.
template <class T>
__global__ void end_step_kernel(const T* loss, int64_t n, const StepEnd end) {
  __shared__ double sums[end_threads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += end_threads) sum += static_cast<double>(loss[i]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int width = end_threads / 2; width > 0; width /= 2) {
    if (threadIdx.x < static_cast<unsigned>(width)) sums[threadIdx.x] += sums[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    StepState& state = *end.state;
    end.losses[state.steps % end.kept * end.numbers] = sums[0];
    ++state.steps;
    state.first_stream += static_cast<uint64_t>(end.streams);
    for (int f = 0; f < end.feeds; ++f) *end.cursors[f] += end.rows[f];
  }
}

template <class T>
__global__ void record_elements_kernel(const T* value, int64_t n, int64_t position, const StepEnd end) {
  double* to = end.losses + end.state->steps % end.kept * end.numbers + position;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = static_cast<double>(value[i]);
}

}  // namespace

void show_batch(const ShownBatch& batch) {
  int64_t bytes = 0;
  for (int c = 0; c < batch.count; ++c) bytes += batch.columns[c].row_bytes * batch.rows;
  if (bytes) launch(show_batch_kernel, grid_for(bytes, 16), batch);
}

void record_elements(const Tensor& value, int64_t position, const StepEnd& end) {
  const int64_t n = value.elements();
  const Grid grid = n == 1 ? Grid{dim3(1), dim3(1)} : grid_for(n, 1);
  visit_stored(value.dtype(), [&]<class T>(TypeTag<T>) {
    launch(record_elements_kernel<T>, grid, static_cast<const T*>(value.address()), n, position, end);
  });
}

void end_step(const Tensor& loss, const StepEnd& end) {
  visit_stored(loss.dtype(), [&]<class T>(TypeTag<T>) {
    launch(end_step_kernel<T>, Grid{dim3(1), dim3(end_threads)}, static_cast<const T*>(loss.address()),
           loss.elements(), end);
  });
}

}  // namespace espalier::cu
