// Search in sorted rows, and counts of numbers.
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/sorting/order_key.h"

namespace espalier::cu {

namespace {

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    search_rows(const T* __restrict__ sorted, const T* __restrict__ values, int64_t* __restrict__ out,
                int64_t count, int64_t in_row, int64_t n, bool right) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const T* row = sorted + divide(i, in_row) * n;
    const OrderKey<C> key = order_key(static_cast<C>(values[i]));
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const OrderKey<C> other = order_key(static_cast<C>(row[middle]));
      if (right ? other <= key : other < key)
        low = middle + 1;
      else
        high = middle;
    }
    out[i] = low;
  }
}

Bound bind_searchsorted(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const int64_t count = out.elements();
  if (count == 0) return bound([](RandomStream) {});
  const Tensor& rows = *call.inputs[0];
  const int64_t in_row = rows.rank() == 1 ? count : out.shape()[-1];
  Bound result;
  visit_elements(rows.dtype(), [&]<class T>(TypeTag<T>) {
    result = bound([=, sorted = ContiguousInput(rows), values = ContiguousInput(*call.inputs[1]),
                    to = static_cast<int64_t*>(out.address()), n = rows.shape()[-1],
                    right = attribute<bool>(op, "right")](RandomStream) mutable {
      sorted.refresh();
      values.refresh();
      launch(search_rows<T>, grid_for(count), static_cast<const T*>(sorted.address()),
             static_cast<const T*>(values.address()), to, count, in_row, n, right);
    });
  });
  return result;
}

__global__ void __launch_bounds__(threads_in_block)
    count_numbers(IndexList numbers, int64_t count, int64_t bins, unsigned long long* __restrict__ out) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads())
    atomicAdd(out + numbers.at(i, bins, false), 1ull);
}

Bound bind_bincount(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor& list = *call.inputs[0];
  const int64_t count = list.elements(), bins = out.elements();
  if (bins == 0) return bind_look(call, list, bins, "bincount", false);
  if (count == 0) return bound([to = &out](RandomStream) { zero_elements(*to); });
  ContiguousInput numbers(list);
  const IndexList indices = index_list(call, list, numbers, "bincount");
  return bound([=, counts = &out, numbers = std::move(numbers)](RandomStream) mutable {
    numbers.refresh();
    zero_elements(*counts);
    launch(count_numbers, grid_for(count), indices, count, bins,
           static_cast<unsigned long long*>(counts->address()));
  });
}

}  // namespace

void add_search_kernels(KernelRegistry& kernels) {
  kernels.add("searchsorted", bind_searchsorted);
  kernels.add("bincount", bind_bincount);
}

}  // namespace espalier::cu
