#include "espalier/executor/fused/interpreter.h"

#include <algorithm>
#include <cstring>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/prefetch.h"
#include "espalier/core/cpu/vectorize.h"

namespace espalier {

void TileKernel::run_gather(const TileGather& g, int64_t begin, int64_t count, uint32_t bytes, char* to) {
  const size_t outer = g.sizes.size() - 1;
  SmallVector<int64_t, 16> index(outer + 1, 0);
  const char* from = g.base;
  int64_t rest = begin;
  for (size_t i = outer + 1; i-- > 0;) {
    index[i] = rest % g.sizes[i];
    rest /= g.sizes[i];
    from += index[i] * g.strides[i];
  }
  const int64_t last = g.sizes[outer], stride = g.strides[outer];
  while (count > 0) {
    const int64_t n = std::min(count, last - index[outer]);
    gather_row(n, to, from, stride, bytes);
    to += n * bytes;
    count -= n;
    from -= index[outer] * stride;
    index[outer] = 0;
    for (size_t i = outer; i-- > 0;) {
      from += g.strides[i];
      if (++index[i] < g.sizes[i]) break;
      from -= g.sizes[i] * g.strides[i];
      index[i] = 0;
    }
  }
}

namespace {

/// 64 bytes anywhere: one load and one store where the instructions are that wide.
using Piece [[gnu::vector_size(64), gnu::aligned(1), gnu::may_alias]] = char;

/// Copies rows of so many bytes, one for each of `count`.
template <class From, class To>
void copy_rows(int64_t count, int64_t bytes, From from, To to) {
  constexpr int64_t piece = sizeof(Piece);
  if (bytes < piece) {
    for (int64_t k = 0; k < count; ++k) std::memcpy(to(k), from(k), static_cast<size_t>(bytes));
    return;
  }
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t k = 0; k < count; ++k) {
      const char* const source = from(k);
      char* const target = to(k);
      // Stores that cross lines take twice as long; loads do not. The first and the last piece overlap
      // others.
      const int64_t first = piece - static_cast<int64_t>(reinterpret_cast<uintptr_t>(target) % piece);
      const Piece head = *reinterpret_cast<const Piece*>(source),
                  tail = *reinterpret_cast<const Piece*>(source + bytes - piece);
      *reinterpret_cast<Piece*>(target) = head;
      for (int64_t i = first; i < bytes - piece; i += piece)
        *reinterpret_cast<Piece*>(target + i) = *reinterpret_cast<const Piece*>(source + i);
      *reinterpret_cast<Piece*>(target + bytes - piece) = tail;
    }
  });
}

}  // namespace

/// Of rows behind each other that end before `until`, `count` are copied and more are prefetched.
void TileKernel::run_take(const TileTable& table, const int64_t* rows, int64_t count, int64_t until,
                          int64_t column, int64_t bytes, char* to) {
  const char* const base = table.base + column;
  const int64_t stride = table.row_bytes, ahead = rows_ahead(bytes);
  copy_rows(
      count, bytes,
      [=](int64_t k) __attribute__((always_inline)) {
        if (k + ahead < until) prefetch_row(base + rows[k + ahead] * stride, bytes);
        return base + rows[k] * stride;
      },
      [=](int64_t k) __attribute__((always_inline)) { return to + k * bytes; });
}

void TileKernel::run_put(const TileTable& table, const int64_t* rows, int64_t count, int64_t column,
                         int64_t bytes, const char* from) {
  char* const base = table.base + column;
  const int64_t stride = table.row_bytes;
  copy_rows(
      count, bytes, [=](int64_t k) __attribute__((always_inline)) { return from + k * bytes; },
      [=](int64_t k) __attribute__((always_inline)) { return base + rows[k] * stride; });
}

void TileKernel::run_step(const TileStep& s, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          char* scratch) {
  const int64_t n = s.extent == Extent::full ? rows * columns : s.extent == Extent::row ? rows : 1;
  const auto in = [&](size_t k) { return s.in[k].at(row, column, scratch); };
  char* out = s.out.at(row, column, scratch);
  switch (s.kind) {
    case TileStep::Kind::unary: return s.function.unary(n, out, in(0), s.in[0].step);
    case TileStep::Kind::binary: return s.function.binary(n, out, in(0), s.in[0].step, in(1), s.in[1].step);
    case TileStep::Kind::ternary:
      return s.function.ternary(n, out, in(0), s.in[0].step, in(1), s.in[1].step, in(2), s.in[2].step);
    case TileStep::Kind::whole_row: {
      const char* from = in(0);
      for (int64_t r = 0; r < rows; ++r, from += columns * s.bytes, out += columns * s.bytes)
        s.whole_row(columns, out, from, 1);
      return;
    }
    case TileStep::Kind::fold_row: return s.fold_row(rows, columns, out, in(0));
    case TileStep::Kind::fold_all: return s.fold_all(n, reinterpret_cast<double*>(out), in(0));
    case TileStep::Kind::spread: {
      const char* from = in(0);
      for (int64_t r = 0; r < rows; ++r, from += s.bytes, out += columns * s.bytes)
        gather_row(columns, out, from, 0, s.bytes);
      return;
    }
    case TileStep::Kind::stream: stream_row(static_cast<size_t>(n) * s.bytes, out, in(0)); return;
    case TileStep::Kind::fill: return gather_row(n, out, in(0), 0, s.bytes);
    case TileStep::Kind::copy: std::memcpy(out, in(0), static_cast<size_t>(n) * s.bytes); return;
    case TileStep::Kind::fold_column:
    case TileStep::Kind::take:
    case TileStep::Kind::put:
    case TileStep::Kind::gather: return;  // they need more than this; see run_tile
  }
}

void TileKernel::begin() {
  for (const TileStep& step : tiles_.uniform_steps) run_step(step, 0, 1, 0, 1, nullptr);
}

void TileKernel::clear(char* scratch) const {
  std::memset(scratch + tiles_.totals_begin, 0, tiles_.scratch_bytes - tiles_.totals_begin);
}

void TileKernel::run_tile_of(int64_t tile, int64_t begin, int64_t end, char* scratch) const {
  const int64_t row = begin + tile / tiles_.tiles_per_row * tiles_.tile_rows,
                column = tile % tiles_.tiles_per_row * tiles_.tile_columns;
  const int64_t rows = std::min(tiles_.tile_rows, end - row);
  const int64_t columns = std::min(tiles_.tile_columns, tiles_.columns - column);
  for (const TileStep& step : tiles_.steps) {
    if (step.kind == TileStep::Kind::gather) {
      const bool full = step.extent == Extent::full;
      run_gather(tiles_.gathers[step.index], full ? row * tiles_.columns + column : row,
                 full ? rows * columns : rows, step.bytes, scratch + step.out.offset);
    } else if (step.kind == TileStep::Kind::take) {
      run_take(tiles_.tables[step.index], tiles_.table_rows + row, rows, end - row, column * step.bytes,
               columns * step.bytes, scratch + step.out.offset);
    } else if (step.kind == TileStep::Kind::put) {
      run_put(tiles_.tables[step.index], tiles_.table_rows + row, rows, column * step.bytes,
              columns * step.bytes, step.in[0].at(row, column, scratch));
    } else if (step.kind == TileStep::Kind::fold_column) {
      step.fold_column((row * tiles_.columns + column) % step.period, step.period, rows * columns,
                       scratch + step.out.offset, step.in[0].at(row, column, scratch));
    } else {
      run_step(step, row, rows, column, columns, scratch);
    }
  }
}

void TileKernel::finish(std::span<char* const> scratches) {
  for (const TileTotal& total : tiles_.totals) {
    const double count = total.fold == Fold::mean
                             ? static_cast<double>(tiles_.elements) / static_cast<double>(total.elements)
                             : 1;
    visit(total.dtype, [&]<class T>(TypeTag<T>) {
      T* out = static_cast<T*>(tiles_.outputs[total.output]->address());
      for (int64_t i = 0; i < total.elements; ++i) {
        double sum = 0;
        for (const char* scratch : scratches)
          sum += reinterpret_cast<const double*>(scratch + total.offset)[i];
        out[i] = static_cast<T>(sum / count);
      }
    });
  }
  for (const auto& [output, uniform] : tiles_.uniform_outputs) {
    Tensor& tensor = *tiles_.outputs[output];
    std::memcpy(tensor.address(), tiles_.uniforms[uniform].data(), size_of(tensor.dtype()));
  }
}

int64_t threads_for_tiles(int64_t cost, int64_t tiles) {
  constexpr int64_t worth_a_thread = 256 * 1024;
  return std::clamp<int64_t>(std::min<int64_t>(num_threads(), cost / worth_a_thread), 1,
                             std::max<int64_t>(tiles, 1));
}

TileScratch::TileScratch(size_t bytes, int64_t threads)
    : memory_({std::max<int64_t>(1, threads * aligned_bytes(static_cast<int64_t>(bytes)))}, DType::boolean) {
  for (int64_t t = 0; t < threads; ++t)
    parts_.push_back(static_cast<char*>(memory_.address()) + t * aligned_bytes(static_cast<int64_t>(bytes)));
}

namespace {

class BoundTiles : public BoundKernel {
 public:
  explicit BoundTiles(std::vector<TileKernel> kernels) : kernels_(std::move(kernels)) {
    size_t bytes = 0;
    int64_t cost = 0;
    for (const TileKernel& kernel : kernels_) {
      bytes = std::max(bytes, kernel.scratch_bytes());
      ends_.push_back(tiles_ += kernel.tiles());
      cost += kernel.tiles() * kernel.tile_cost();
    }
    threads_ = threads_for_tiles(cost, tiles_);
    scratch_ = TileScratch(bytes, threads_);
  }

  void run(RandomStream) override {
    for (TileKernel& kernel : kernels_) kernel.begin();
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) work(t);
    });
    for (TileKernel& kernel : kernels_) kernel.finish(scratch_.all());
  }

 private:
  void work(int64_t thread) const {
    char* scratch = scratch_.of(thread);
    if (kernels_.size() == 1) kernels_[0].clear(scratch);
    const int64_t begin = tiles_ * thread / threads_, end = tiles_ * (thread + 1) / threads_;
    size_t k = 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      while (tile >= ends_[k]) ++k;
      kernels_[k].run_tile(tile - (k ? ends_[k - 1] : 0), scratch);
    }
    stream_fence();
  }

  std::vector<TileKernel> kernels_;
  std::vector<int64_t> ends_;
  int64_t tiles_ = 0, threads_ = 1;
  TileScratch scratch_;
};

}  // namespace

std::unique_ptr<BoundKernel> bind_tiles(std::vector<TileKernel> kernels) {
  return std::make_unique<BoundTiles>(std::move(kernels));
}

}  // namespace espalier
