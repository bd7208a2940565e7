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

template <size_t K>
using Offsets = std::array<int64_t, K>;

/// Calls `row(n, offsets, steps)` for all rows; entry 0 is the output, entries from 1 on are the inputs.
template <size_t K, class Row>
void for_each_row(const KernelCall& call, const Row& row) {
  const Tensor& out = *call.outputs[0];
  const int64_t n = out.elements();
  bool whole = true;  // no input is strided or broadcast
  for (size_t k = 0; k < K; ++k)
    whole &= call.inputs[k]->shape() == out.shape() && call.inputs[k]->contiguous();
  if (whole) {
    Offsets<K + 1> step;
    step.fill(1);
    if (n < 2 * detail::grain) return row(n, Offsets<K + 1>{}, step);
    parallel_for(n, detail::grain, [&](int64_t begin, int64_t end) {
      Offsets<K + 1> from;
      from.fill(begin);
      row(end - begin, from, step);
    });
    return;
  }
  std::array<Layout, K> layouts;
  std::array<const Dims*, K + 1> strides{&out.strides()};
  for (size_t k = 0; k < K; ++k) {
    const Tensor& in = *call.inputs[k];
    if (!(in.shape() == out.shape())) layouts[k] = broadcast_layout(in.layout(), out.shape());
    strides[k + 1] = in.shape() == out.shape() ? &in.strides() : &layouts[k].strides;
  }
  const StridedLoop<K + 1> loop(out.shape(), strides);
  if (loop.empty()) return;
  if (loop.rows() == 1) {  // one row, with a step other than 1
    parallel_for(loop.row(), detail::grain, [&](int64_t begin, int64_t end) {
      Offsets<K + 1> from;
      for (size_t k = 0; k <= K; ++k) from[k] = begin * loop.row_step()[k];
      row(end - begin, from, loop.row_step());
    });
    return;
  }
  parallel_for(loop.rows(), std::max<int64_t>(1, detail::grain / loop.row()),
               [&](int64_t begin, int64_t end) { loop.run_rows(begin, end, row); });
}

/// The start of a tensor, to be moved by elements.
struct Bytes {
  char* begin;
  int64_t size;
  explicit Bytes(const Tensor& t)
      : begin(static_cast<char*>(t.address())), size(static_cast<int64_t>(size_of(t.dtype()))) {}
  void* at(int64_t element) const { return begin + element * size; }
};

}  // namespace

void run_rows(const KernelCall& call, UnaryRow row) {
  const Bytes out(*call.outputs[0]), a(*call.inputs[0]);
  for_each_row<1>(call, [=](int64_t n, const Offsets<2>& from, const Offsets<2>& step) {
    row(n, out.at(from[0]), a.at(from[1]), step[1]);
  });
}

void run_rows(const KernelCall& call, BinaryRow row) {
  const Bytes out(*call.outputs[0]), a(*call.inputs[0]), b(*call.inputs[1]);
  for_each_row<2>(call, [=](int64_t n, const Offsets<3>& from, const Offsets<3>& step) {
    row(n, out.at(from[0]), a.at(from[1]), step[1], b.at(from[2]), step[2]);
  });
}

void run_rows(const KernelCall& call, TernaryRow row) {
  const Bytes out(*call.outputs[0]), a(*call.inputs[0]), b(*call.inputs[1]), c(*call.inputs[2]);
  for_each_row<3>(call, [=](int64_t n, const Offsets<4>& from, const Offsets<4>& step) {
    row(n, out.at(from[0]), a.at(from[1]), step[1], b.at(from[2]), step[2], c.at(from[3]), step[3]);
  });
}

}  // namespace espalier
