#include "espalier/core/cpu/strided_copy.h"

#include <algorithm>
#include <optional>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/strided_loop.h"
#include "espalier/core/cpu/vectorize.h"

namespace espalier {

namespace {

constexpr int64_t to_side = 0, from_side = 1;  // of StridedLoop
constexpr int64_t worth_a_thread = 32768;      // elements worth a thread
constexpr int64_t tile_side = 16;              // of a transposition, in rows and columns

using Loop = StridedLoop<2>;

/// Two axes, one of which is contiguous where elements come from, the other where they go to.
struct Transposition {
  size_t of_from, of_to;
};

/// If both have so many elements that tiles pay.
std::optional<Transposition> transposition(const Loop& loop) {
  const auto contiguous = [&](int64_t side) {
    size_t axis = 0;
    while (axis < loop.axes() && loop.step(axis)[static_cast<size_t>(side)] != 1) ++axis;
    return axis;
  };
  const Transposition found{contiguous(from_side), contiguous(to_side)};
  if (found.of_from == found.of_to || std::max(found.of_from, found.of_to) == loop.axes())
    return std::nullopt;
  if (std::min(loop.size(found.of_from), loop.size(found.of_to)) < tile_side / 2) return std::nullopt;
  return found;
}

/// A matrix of which `from` has the rows and `to` the columns one behind the other. The steps are those to
/// the next row and to the next column.
template <class T>
void transpose_tiles(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t rows,
                     int64_t columns) {
  for (int64_t c = 0; c < columns; c += tile_side) {
    if (rows == tile_side && columns - c >= tile_side) {
      // Each line of memory is read and written once, also where rows lie a power of 2 apart.
      T block[tile_side * tile_side];
      for (int64_t r = 0; r < tile_side; ++r)
        std::copy_n(from + r * from_step + c, tile_side, block + r * tile_side);
      for (int64_t i = 0; i < tile_side; ++i)
        for (int64_t r = 0; r < tile_side; ++r) to[(c + i) * to_step + r] = block[r * tile_side + i];
      continue;
    }
    for (int64_t i = c; i < std::min(c + tile_side, columns); ++i)
      for (int64_t r = 0; r < rows; ++r) to[i * to_step + r] = from[r * from_step + i];
  }
}

template <class T>
void copy_transposed(T* to, const T* from, const Loop& loop, const Transposition& axes) {
  const int64_t rows = loop.size(axes.of_to), columns = loop.size(axes.of_from);
  const int64_t to_step = loop.step(axes.of_from)[to_side], from_step = loop.step(axes.of_to)[from_side];
  const int64_t blocks = (rows + tile_side - 1) / tile_side,
                matrices = loop.rows() * loop.row() / (rows * columns);
  parallel_for(matrices * blocks, std::max<int64_t>(1, worth_a_thread / (tile_side * columns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   int64_t rest = unit / blocks, to_at = 0, from_at = 0;
                   for (size_t axis = loop.axes(); axis-- > 0;) {
                     if (axis == axes.of_from || axis == axes.of_to) continue;
                     const int64_t index = rest % loop.size(axis);
                     rest /= loop.size(axis);
                     to_at += index * loop.step(axis)[to_side];
                     from_at += index * loop.step(axis)[from_side];
                   }
                   const int64_t row = unit % blocks * tile_side;
                   transpose_tiles(to + to_at + row, to_step, from + from_at + row * from_step, from_step,
                                   std::min(tile_side, rows - row), columns);
                 }
               });
}

/// Rows of n elements that lie one behind the other in `to`.
template <int64_t n, class T>
void copy_short_rows(T* to, const T* from, int64_t step, int64_t row_step, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) to[r * n + i] = from[r * row_step + i * step];
}

template <class T>
void copy_rows(T* to, const T* from, const Loop& loop) {
  const int64_t n = loop.row();
  const auto [to_step, from_step] = loop.row_step();
  if (loop.axes() == 2 && n <= 4 && to_step == 1 && loop.step(0)[to_side] == n) {
    const int64_t row_step = loop.step(0)[from_side];
    return parallel_for(loop.size(0), worth_a_thread / n, [=, by = from_step](int64_t begin, int64_t end) {
      const auto copy = n == 2   ? copy_short_rows<2, T>
                        : n == 3 ? copy_short_rows<3, T>
                                 : copy_short_rows<4, T>;
      copy(to + begin * n, from + begin * row_step, by, row_step, end - begin);
    });
  }
  parallel_for(loop.rows(), std::max<int64_t>(1, worth_a_thread / n), [&](int64_t begin, int64_t end) {
    loop.run_rows(begin, end, [=](int64_t count, const auto& at, const auto& step) {
      T* const out = to + at[to_side];
      const T* const in = from + at[from_side];
      if (step[to_side] == 1 && step[from_side] == 1)
        std::copy_n(in, count, out);
      else if (step[to_side] == 1 && step[from_side] == 0)
        std::fill_n(out, count, *in);
      else if (step[to_side] == 1 && step[from_side] == -1)
        vectorized([=]() __attribute__((always_inline)) {
          for (int64_t i = 0; i < count; ++i) out[i] = in[-i];
        });
      else
        for (int64_t i = 0; i < count; ++i) out[i * step[to_side]] = in[i * step[from_side]];
    });
  });
}

}  // namespace

void copy_strided(const Tensor& from, Tensor& to) {
  const Loop loop(from.shape(), {&to.strides(), &from.strides()});
  if (loop.empty()) return;
  const auto axes = transposition(loop);
  visit_size(from.dtype(), [&]<class T>(TypeTag<T>) {
    T* const out = static_cast<T*>(to.address());
    const T* const in = static_cast<const T*>(from.address());
    if (axes)
      copy_transposed(out, in, loop, *axes);
    else
      copy_rows(out, in, loop);
  });
}

}  // namespace espalier
