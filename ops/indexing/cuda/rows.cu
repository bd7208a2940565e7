// Rows of a table that updates take out and put back: take_rows and put_rows.
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/words.cuh"

namespace espalier::cu {

namespace {

/// Copies the rows of a table to [count, words], with zeros where `rows` names none of `size`.
template <class W>
__global__ void __launch_bounds__(threads_in_block)
    take_rows_of(const W* __restrict__ table, const int64_t* __restrict__ rows, W* __restrict__ out,
                 int64_t count, int64_t size, int64_t words) {
  for (int64_t i = grid_thread(); i < count * words; i += grid_threads()) {
    const int64_t place = divide(i, words), row = rows[place];
    const bool within = row >= 0 && row < size;
    out[i] = within ? table[row * words + (i - place * words)] : W{};
  }
}
/// The reverse: each row is written once at most.
template <class W>
__global__ void __launch_bounds__(threads_in_block)
    put_rows_of(const W* __restrict__ values, const int64_t* __restrict__ rows, W* __restrict__ table,
                int64_t count, int64_t size, int64_t words) {
  for (int64_t i = grid_thread(); i < count * words; i += grid_threads()) {
    const int64_t place = divide(i, words), row = rows[place];
    if (row >= 0 && row < size) table[row * words + (i - place * words)] = values[i];
  }
}

/// Calls `f(TypeTag<W>{}, words)` with the largest type in which rows can be moved between two addresses, and
/// how many of them a row has.
template <class F>
void visit_row_words(const Tensor& table, const void* from, const void* to, F&& f) {
  const int64_t bytes =
      table.elements() / table.shape().dims()[0] * static_cast<int64_t>(size_of(table.dtype()));
  const int64_t word = word_bytes(bytes, from, to);
  visit_words(word, [&]<class W>(TypeTag<W> tag) { f(tag, bytes / word); });
}

Bound bind_take_rows(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const int64_t size = call.inputs[0]->shape().dims()[0], count = call.inputs[1]->elements();
  if (size == 0) return bound([to = &out](RandomStream) { zero_elements(*to); });
  ContiguousInput table(*call.inputs[0]), rows(*call.inputs[1]);
  Bound result;
  visit_row_words(*call.inputs[0], table.address(), out.address(), [&]<class W>(TypeTag<W>, int64_t words) {
    result = bound([=, to = static_cast<W*>(out.address()), table = std::move(table),
                    rows = std::move(rows)](RandomStream) mutable {
      table.refresh();
      rows.refresh();
      launch(take_rows_of<W>, grid_for(count * words), static_cast<const W*>(table.address()),
             static_cast<const int64_t*>(rows.address()), to, count, size, words);
    });
  });
  return result;
}

Bound bind_put_rows(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor& old = *call.inputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const bool in_place = old.address() == out.address();
  const int64_t size = out.shape().dims()[0], count = call.inputs[1]->elements();
  if (count == 0)
    return bound([=, from = &old, to = &out](RandomStream) {
      if (!in_place) copy_elements(*from, *to);
    });
  ContiguousInput values(*call.inputs[2]), rows(*call.inputs[1]);
  Bound result;
  visit_row_words(out, values.address(), out.address(), [&]<class W>(TypeTag<W>, int64_t words) {
    result = bound([=, from = &old, to = &out, values = std::move(values),
                    rows = std::move(rows)](RandomStream) mutable {
      if (!in_place) copy_elements(*from, *to);
      values.refresh();
      rows.refresh();
      launch(put_rows_of<W>, grid_for(count * words), static_cast<const W*>(values.address()),
             static_cast<const int64_t*>(rows.address()), static_cast<W*>(to->address()), count, size, words);
    });
  });
  return result;
}

}  // namespace

void add_row_kernels(KernelRegistry& kernels) {
  kernels.add("take_rows", bind_take_rows);
  kernels.add("put_rows", bind_put_rows);
}

}  // namespace espalier::cu
