// Kernels by index: gather, pick, put_like and one_hot.
#include <algorithm>
#include <cstring>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/words.cuh"

namespace espalier::cu {

namespace {

/// Copies rows of `words` words from [outer, size] to [outer, count], by the list of indices.
template <class W>
__global__ void __launch_bounds__(threads_in_block)
    gather_rows(const W* __restrict__ in, W* __restrict__ out, IndexList indices, int64_t count, int64_t size,
                int64_t rows, int64_t words, bool from_end) {
  constexpr int batch = 4;  // reads in flight for each thread
  const int64_t n = rows * words, step = grid_threads();
  for (int64_t begin = grid_thread(); begin < n; begin += batch * step) {
    int64_t from[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const int64_t i = min(begin + k * step, n - 1), row = divide(i, words), outer = divide(row, count);
      from[k] = (outer * size + indices.at(row - outer * count, size, from_end)) * words + (i - row * words);
    }
    W word[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) word[k] = in[from[k]];
#pragma unroll
    for (int k = 0; k < batch; ++k)
      if (begin + k * step < n) out[begin + k * step] = word[k];
  }
}

__global__ void __launch_bounds__(threads_in_block)
    look_at(IndexList indices, int64_t count, int64_t size, bool from_end) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) indices.at(i, size, from_end);
}

template <class W>
__global__ void __launch_bounds__(threads_in_block)
    pick_elements(const W* __restrict__ in, W* __restrict__ out, IndexList indices, int64_t rows, int64_t n) {
  for (int64_t r = grid_thread(); r < rows; r += grid_threads()) out[r] = in[r * n + indices.at(r, n, false)];
}

/// Writes one element of each row, from `values`, or `value` if that is null, and zeros elsewhere. Writes V
/// elements at once.
template <int V, class W>
__global__ void __launch_bounds__(threads_in_block)
    put_elements(const W* __restrict__ values, W value, W* __restrict__ out, IndexList indices, int64_t rows,
                 int64_t n) {
  const int64_t units = n / V;
  for (int64_t i = grid_thread(); i < rows * units; i += grid_threads()) {
    const int64_t r = divide(i, units), at = indices.at(r, n, false) - (i - r * units) * V;
    Several<W, V> write;
#pragma unroll
    for (int v = 0; v < V; ++v) write.at[v] = W(0);
    if (at >= 0 && at < V) {
      const W put = values ? values[r] : value;
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v == at) write.at[v] = put;
    }
    reinterpret_cast<Several<W, V>*>(out)[i] = write;
  }
}

template <class W>
void launch_put(const void* values, W value, Tensor& out, const IndexList& indices) {
  const int64_t n = out.shape()[-1], rows = out.elements() / n;
  W* to = static_cast<W*>(out.address());
  constexpr int width = vector_width<W>;
  const bool vectors = in_vectors<W>(to, n);
  launch(vectors ? put_elements<width, W> : put_elements<1, W>, grid_for(out.elements(), vectors ? width : 1),
         static_cast<const W*>(values), value, to, indices, rows, n);
}

/// Calls `f(TypeTag<W>{})` with an unsigned type of the dtype's size.
template <class F>
void visit_elements_as_words(DType dtype, F&& f) {
  visit_words(static_cast<int64_t>(size_of(dtype)), [&]<class W>(TypeTag<W> tag) {
    if constexpr (sizeof(W) <= 8) f(tag);
  });
}

}  // namespace

Bound bind_look(const KernelCall& call, const Tensor& list, int64_t size, std::string_view op,
                bool from_end) {
  const int64_t count = list.elements();
  if (count == 0) return bound([](RandomStream) {});
  ContiguousInput places(list);
  const IndexList indices = index_list(call, list, places, op);
  return bound([=, places = std::move(places)](RandomStream) mutable {
    places.refresh();
    launch(look_at, grid_for(count), indices, count, size, from_end);
  });
}

namespace {

Bound bind_rows(const KernelCall& call, size_t axis, std::string_view function, bool from_end) {
  Tensor& out = *call.outputs[0];
  const Tensor &x = *call.inputs[0], &list = *call.inputs[1];
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < x.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : x.shape().dims()[i];
  const int64_t size = x.shape().dims()[axis], count = list.elements();
  if (out.elements() == 0 || size == 0) return bind_look(call, list, size, function, from_end);
  ContiguousInput table(x), places(list);
  const IndexList indices = index_list(call, list, places, function);
  const int64_t bytes = inner * static_cast<int64_t>(size_of(x.dtype()));
  const int64_t word = word_bytes(bytes, table.address(), out.address());
  Bound result;
  visit_words(word, [&]<class W>(TypeTag<W>) {
    result = bound([=, to = static_cast<W*>(out.address()), table = std::move(table),
                    places = std::move(places)](RandomStream) mutable {
      table.refresh();
      places.refresh();
      launch(gather_rows<W>, grid_for(outer * count * (bytes / word), 4),
             static_cast<const W*>(table.address()), to, indices, count, size, outer * count, bytes / word,
             from_end);
    });
  });
  return result;
}

Bound bind_gather(const Op& op, const KernelCall& call) {
  const size_t rank = call.inputs[0]->rank();
  return bind_rows(call, resolve_axis(attribute<int64_t>(op, "axis"), rank, "gather"), "gather", true);
}

Bound bind_look_up(const Op& op, const KernelCall& call) {
  return bind_rows(call, 0, attribute<std::string>(op, "function"), attribute<bool>(op, "from_end"));
}

Bound bind_pick(const Op& op, const KernelCall& call) {
  const auto function = attribute<std::string>(op, "function");
  Tensor& out = *call.outputs[0];
  const int64_t rows = out.elements(), n = call.inputs[0]->shape()[-1];
  if (rows == 0 || n == 0) return bind_look(call, *call.inputs[1], n, function, false);
  ContiguousInput x(*call.inputs[0]), places(*call.inputs[1]);
  const IndexList indices = index_list(call, *call.inputs[1], places, function);
  Bound result;
  visit_elements_as_words(out.dtype(), [&]<class W>(TypeTag<W>) {
    result = bound([=, to = static_cast<W*>(out.address()), x = std::move(x),
                    places = std::move(places)](RandomStream) mutable {
      x.refresh();
      places.refresh();
      launch(pick_elements<W>, grid_for(rows), static_cast<const W*>(x.address()), to, indices, rows, n);
    });
  });
  return result;
}

Bound bind_put_like(const Op& op, const KernelCall& call) {
  const auto function = attribute<std::string>(op, "function");
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bind_look(call, *call.inputs[1], out.shape()[-1], function, false);
  ContiguousInput values(*call.inputs[0]), places(*call.inputs[1]);
  const IndexList indices = index_list(call, *call.inputs[1], places, function);
  Bound result;
  visit_elements_as_words(out.dtype(), [&]<class W>(TypeTag<W>) {
    result =
        bound([=, to = &out, values = std::move(values), places = std::move(places)](RandomStream) mutable {
          values.refresh();
          places.refresh();
          launch_put(values.address(), W(0), *to, indices);
        });
  });
  return result;
}

Bound bind_one_hot(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  ContiguousInput places(*call.inputs[0]);
  const IndexList indices = index_list(call, *call.inputs[0], places, "one_hot");
  uint64_t one = 0;
  visit_stored(out.dtype(), [&]<class T>(TypeTag<T>) {
    const T value(1);
    std::memcpy(&one, &value, sizeof(T));
  });
  Bound result;
  visit_elements_as_words(out.dtype(), [&]<class W>(TypeTag<W>) {
    result = bound([=, to = &out, places = std::move(places)](RandomStream) mutable {
      places.refresh();
      launch_put(nullptr, static_cast<W>(one), *to, indices);
    });
  });
  return result;
}

}  // namespace

void add_index_kernels(KernelRegistry& kernels) {
  kernels.add("gather", bind_gather);
  kernels.add("look_up", bind_look_up);
  kernels.add("pick", bind_pick);
  kernels.add("put_like", bind_put_like);
  kernels.add("one_hot", bind_one_hot);
}

}  // namespace espalier::cu
