#include "espalier/ops/pointwise.h"

namespace espalier {

void match_numbers(const Variable*& x, const Variable*& y, Variable& owned,
                   const std::source_location& where) {
  const auto match = [&](const Variable*& number, const Variable& other) {
    const detail::Number* value = number_of(number->node()->op());
    if (!value) return false;
    owned = located(where, [&] { return Variable(value->as(other.dtype()).to(other.device()), where); });
    number = &owned;
    return true;
  };
  if (!match(x, *y)) match(y, *x);
}

void check_same_dtype(const Spec& a, const Spec& b, std::string_view op) {
  if (a.dtype != b.dtype)
    throw TypeError(
        fmt::format("{}: operands of {} (shape {}) and {} (shape {}) do not go together; cast() one of them",
                    op, name(a.dtype), a.shape.str(), name(b.dtype), b.shape.str()));
}

namespace {

constexpr int64_t short_row = 8;        // Shorter rows are joined,
constexpr int64_t fewest_joined = 32;   // of at least so many elements,
constexpr int64_t most_joined = 512;    // and at most,
constexpr int64_t largest_element = 8;  // of at most so many bytes.

/// Copies rows of n elements, which lie anywhere, one behind the other; `fixed` is n, or 0.
template <int64_t fixed, class T>
void join_rows(T* to, const T* from, int64_t rows, int64_t row_step, int64_t n, int64_t step) {
  const int64_t count = fixed ? fixed : n;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < count; ++i) to[r * count + i] = from[r * row_step + i * step];
}
void join_rows(char* to, const char* from, int64_t size, int64_t rows, int64_t row_step, int64_t n,
               int64_t step) {
  const auto run = [=]<class T>(TypeTag<T>) {
    const auto join = n == 2 ? join_rows<2, T> : n == 3 ? join_rows<3, T> : join_rows<0, T>;
    join(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), rows, row_step, n, step);
  };
  switch (size) {
    case 1: return run(TypeTag<uint8_t>{});
    case 2: return run(TypeTag<uint16_t>{});
    case 4: return run(TypeTag<uint32_t>{});
    default: return run(TypeTag<uint64_t>{});
  }
}

/// A call with K inputs; the output is operand 0, and `row(n, places, steps)` computes n elements.
template <size_t K, class Row>
class PointwiseCall {
 public:
  using Offsets = std::array<int64_t, K + 1>;
  using Places = std::array<char*, K + 1>;

  PointwiseCall(const KernelCall& call, const Row& row) : call_(call), row_(row) {
    for (size_t k = 0; k <= K; ++k) {
      const Tensor& t = k ? *call.inputs[k - 1] : *call.outputs[0];
      begin_[k] = static_cast<char*>(t.address());
      size_[k] = static_cast<int64_t>(size_of(t.dtype()));
    }
  }

  void run() const {
    const Tensor& out = *call_.outputs[0];
    const int64_t n = out.elements();
    bool whole = true;  // no input is strided or broadcast
    for (size_t k = 0; k < K; ++k)
      whole &= call_.inputs[k]->shape() == out.shape() && call_.inputs[k]->contiguous();
    if (whole) {
      Offsets step;
      step.fill(1);
      if (n < 2 * detail::grain) return row_(n, begin_, step);
      return run_row(n, step);
    }
    std::array<Layout, K> layouts;
    std::array<const Dims*, K + 1> strides{&out.strides()};
    for (size_t k = 0; k < K; ++k) {
      const Tensor& in = *call_.inputs[k];
      if (!(in.shape() == out.shape())) layouts[k] = broadcast_layout(in.layout(), out.shape());
      strides[k + 1] = in.shape() == out.shape() ? &in.strides() : &layouts[k].strides;
    }
    const Loop loop(out.shape(), strides);
    if (loop.empty()) return;
    if (loop.rows() == 1) return run_row(loop.row(), loop.row_step());  // with a step other than 1
    if (loop.row() < short_row && loop.size(loop.axes() - 2) * loop.row() >= fewest_joined)
      return run_joined(loop);
    parallel_for(loop.rows(), std::max<int64_t>(1, detail::grain / loop.row()),
                 [&](int64_t begin, int64_t end) {
                   loop.run_rows(begin, end, [&](int64_t count, const Offsets& at, const Offsets& step) {
                     row_(count, places(at), step);
                   });
                 });
  }

 private:
  using Loop = StridedLoop<K + 1>;

  Places places(const Offsets& at) const {
    Places result = begin_;
    for (size_t k = 0; k <= K; ++k) result[k] += at[k] * size_[k];
    return result;
  }

  void run_row(int64_t n, const Offsets& step) const {
    parallel_for(n, detail::grain, [&](int64_t begin, int64_t end) {
      Offsets from;
      for (size_t k = 0; k <= K; ++k) from[k] = begin * step[k];
      row_(end - begin, places(from), step);
    });
  }

  /// Rows too short to be run one by one: several of a matrix at a time. The output has them one behind the
  /// other; inputs that have no one step from element to element are copied.
  void run_joined(const Loop& loop) const {
    const int64_t n = loop.row(), rows = loop.size(loop.axes() - 2), most = most_joined / n,
                  blocks = (rows + most - 1) / most;
    const Offsets &row_step = loop.step(loop.axes() - 2), &step = loop.row_step();
    parallel_for(loop.matrices() * blocks, detail::grain / most_joined, [&](int64_t begin, int64_t end) {
      alignas(largest_element) char room[K][most_joined * largest_element];
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % blocks * most, count = std::min(most, rows - first);
        loop.run_matrix(unit / blocks, [&](Offsets at) {
          for (size_t k = 0; k <= K; ++k) at[k] += first * row_step[k];
          Places from = places(at);
          Offsets by = step;
          for (size_t k = 1; k <= K; ++k) {
            if (row_step[k] == n * step[k]) continue;
            join_rows(room[k - 1], from[k], size_[k], count, row_step[k], n, step[k]);
            from[k] = room[k - 1];
            by[k] = 1;
          }
          row_(count * n, from, by);
        });
      }
    });
  }

  const KernelCall& call_;
  const Row& row_;
  Places begin_;
  Offsets size_;
};

template <size_t K, class Row>
void for_each_row(const KernelCall& call, const Row& row) {
  PointwiseCall<K, Row>(call, row).run();
}

}  // namespace

void run_rows(const KernelCall& call, UnaryRow row) {
  for_each_row<1>(call, [=](int64_t n, const auto& at, const auto& step) { row(n, at[0], at[1], step[1]); });
}

void run_rows(const KernelCall& call, BinaryRow row) {
  for_each_row<2>(call, [=](int64_t n, const auto& at, const auto& step) {
    row(n, at[0], at[1], step[1], at[2], step[2]);
  });
}

void run_rows(const KernelCall& call, TernaryRow row) {
  for_each_row<3>(call, [=](int64_t n, const auto& at, const auto& step) {
    row(n, at[0], at[1], step[1], at[2], step[2], at[3], step[3]);
  });
}

}  // namespace espalier
