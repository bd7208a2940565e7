// Order along the last axis: rows are sorted as keys (order_key.h) with their positions. A block sorts a tile
// of a row in shared memory, and sorted runs are merged, two at a time, until one is as long as the row.
// Since positions are part of the order, it is stable. Selections take what they need from the sorted row.
#include <algorithm>
#include <optional>

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/sorting/order_key.h"

namespace espalier::cu {

namespace {

constexpr int64_t most_in_tile = 2048;  // items that one block sorts: 32 KiB of shared memory

template <class K>
struct KeyAt {
  K key;
  int64_t at;
};
template <class K>
__device__ __forceinline__ bool before(const KeyAt<K>& a, const KeyAt<K>& b) {
  return a.key < b.key || (a.key == b.key && a.at < b.at);
}

template <class T>
using KeyOf = OrderKey<Computed<T>>;

/// Bitonic sort of each tile of each row; `tile` is a power of two. Free places of a tile go behind all
/// items.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    sort_row_tiles(const T* __restrict__ in, KeyAt<KeyOf<T>>* __restrict__ out, int64_t rows, int64_t n,
                   bool descending, int tile) {
  using Item = KeyAt<KeyOf<T>>;
  Item* const items = dynamic_shared<Item>();
  const int own = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
  const int64_t tiles = (n + tile - 1) / tile;
  for (int64_t number = blockIdx.x; number < rows * tiles; number += gridDim.x) {
    const int64_t row = divide(number, tiles), first = (number - row * tiles) * tile;
    __syncthreads();  // all items of the tile before are written
    for (int i = own; i < tile; i += all) {
      const int64_t at = first + i;
      items[i] = at < n ? Item{order_key(static_cast<Computed<T>>(in[row * n + at]), descending), at}
                        : Item{static_cast<KeyOf<T>>(~KeyOf<T>(0)), at};
    }
    for (int run = 2; run <= tile; run *= 2)
      for (int apart = run / 2; apart > 0; apart /= 2) {
        __syncthreads();
        for (int i = own; i < tile / 2; i += all) {
          const int low = 2 * i - (i & (apart - 1)), high = low + apart;
          const Item a = items[low], b = items[high];
          if (before(b, a) == ((low & run) == 0)) {
            items[low] = b;
            items[high] = a;
          }
        }
      }
    __syncthreads();
    for (int i = own; i < tile && first + i < n; i += all) out[row * n + first + i] = items[i];
  }
}

/// Merges adjacent sorted runs of each row: each item goes behind the smaller items of the other run.
template <class K>
__global__ void __launch_bounds__(threads_in_block)
    merge_row_runs(const KeyAt<K>* __restrict__ in, KeyAt<K>* __restrict__ out, int64_t count, int64_t n,
                   int64_t run) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t row = divide(i, n), at = i - row * n, number = divide(at, run);
    const KeyAt<K>* items = in + row * n;
    int64_t low = min((number ^ 1) * run, n), high = min(low + run, n);
    const int64_t other = low;
    const KeyAt<K> item = items[at];
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (before(items[middle], item))
        low = middle + 1;
      else
        high = middle;
    }
    out[row * n + number / 2 * 2 * run + (at - number * run) + (low - other)] = item;
  }
}

/// The first `taken` items of each row of n.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    write_sorted(const KeyAt<KeyOf<T>>* __restrict__ items, const T* __restrict__ in, T* __restrict__ values,
                 int64_t* __restrict__ indices, int64_t rows, int64_t n, int64_t taken) {
  for (int64_t i = grid_thread(); i < rows * taken; i += grid_threads()) {
    const int64_t row = divide(i, taken), at = items[row * n + (i - row * taken)].at;
    values[i] = in[row * n + at];
    indices[i] = at;
  }
}

/// The item of one rank of each row, or for the median the last one if that is a NaN. Of equal ones the
/// first.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    write_ranked(const KeyAt<KeyOf<T>>* __restrict__ items, const T* __restrict__ in, T* __restrict__ values,
                 int64_t* __restrict__ indices, int64_t rows, int64_t n, int64_t rank, bool prefers_nan) {
  for (int64_t row = grid_thread(); row < rows; row += grid_threads()) {
    const KeyAt<KeyOf<T>>* sorted = items + row * n;
    const Computed<T> last = static_cast<Computed<T>>(in[row * n + sorted[n - 1].at]);
    const KeyOf<T> key = sorted[prefers_nan && last != last ? n - 1 : rank].key;
    int64_t low = 0, high = n - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted[middle].key < key)
        low = middle + 1;
      else
        high = middle;
    }
    values[row] = in[row * n + sorted[low].at];
    indices[row] = sorted[low].at;
  }
}

/// The sorted items of rows of n elements of type T.
template <class T>
class SortedRows {
 public:
  using Item = KeyAt<KeyOf<T>>;

  SortedRows(const Tensor& x, bool descending)
      : input_(x), n_(x.shape()[-1]), rows_(x.elements() / n_), descending_(descending) {
    const Shape bytes{rows_ * n_ * static_cast<int64_t>(sizeof(Item))};
    for (Tensor& buffer : buffers_) buffer = Tensor(bytes, boolean, x.device());
  }
  int64_t rows() const { return rows_; }
  int64_t size() const { return n_; }
  const T* elements() const { return static_cast<const T*>(input_.address()); }

  /// Launches the kernels.
  const Item* sort() {
    input_.refresh();
    const int64_t tile = std::clamp<int64_t>(power_from(n_), 2, most_in_tile);
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>(rows_ * divide_up(n_, tile), int64_t{1} << 30));
    const auto block = static_cast<unsigned>(std::clamp<int64_t>(tile / 2, 32, threads_in_block));
    Item *items = static_cast<Item*>(buffers_[0].address()),
         *other = static_cast<Item*>(buffers_[1].address());
    launch(sort_row_tiles<T>, Grid{dim3(blocks), dim3(block), static_cast<size_t>(tile) * sizeof(Item)},
           elements(), items, rows_, n_, descending_, static_cast<int>(tile));
    for (int64_t run = tile; run < n_; run *= 2) {
      launch(merge_row_runs<KeyOf<T>>, grid_for(rows_ * n_), static_cast<const Item*>(items), other,
             rows_ * n_, n_, run);
      std::swap(items, other);
    }
    return items;
  }

 private:
  ContiguousInput input_;
  int64_t n_, rows_;
  bool descending_;
  Tensor buffers_[2];
};

/// Sorts the rows and takes as many elements of each as the output has.
Bound bind_sorted(const KernelCall& call, bool descending) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  auto* indices = static_cast<int64_t*>(call.outputs[1]->address());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    result = bound([=, rows = SortedRows<T>(*call.inputs[0], descending),
                    values = static_cast<T*>(out.address()), taken = out.shape()[-1]](RandomStream) mutable {
      const auto* sorted = rows.sort();
      launch(write_sorted<T>, grid_for(rows.rows() * taken), sorted, rows.elements(), values, indices,
             rows.rows(), rows.size(), taken);
    });
  });
  return result;
}

Bound bind_sort(const Op& op, const KernelCall& call) {
  return bind_sorted(call, attribute<bool>(op, "descending"));
}
Bound bind_topk(const Op& op, const KernelCall& call) {
  return bind_sorted(call, attribute<bool>(op, "largest"));
}

/// `k` counts from 1; without it, the median.
Bound bind_ranked(const KernelCall& call, std::optional<int64_t> k) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  auto* indices = static_cast<int64_t*>(call.outputs[1]->address());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    result = bound([=, rows = SortedRows<T>(*call.inputs[0], false),
                    values = static_cast<T*>(out.address())](RandomStream) mutable {
      const auto* sorted = rows.sort();
      launch(write_ranked<T>, grid_for(rows.rows()), sorted, rows.elements(), values, indices, rows.rows(),
             rows.size(), k ? *k - 1 : (rows.size() - 1) / 2, !k);
    });
  });
  return result;
}
Bound bind_kthvalue(const Op& op, const KernelCall& call) {
  return bind_ranked(call, attribute<int64_t>(op, "k"));
}
Bound bind_median(const KernelCall& call) { return bind_ranked(call, std::nullopt); }

}  // namespace

void add_sort_kernels(KernelRegistry& kernels) {
  kernels.add("sort", bind_sort);
  kernels.add("topk", bind_topk);
  kernels.add("kthvalue", bind_kthvalue);
  kernels.add("median", bind_median);
}

}  // namespace espalier::cu
