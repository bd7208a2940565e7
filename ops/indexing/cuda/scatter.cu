// The transpose of gather, as a whole table or as the rows that are not zero, and the largest or smallest of
// values at one place. Each row of the output is the sum of a few rows of the input. The indices are sorted
// together with their positions, so that the terms of one row are adjacent, and one thread for each column
// adds them in this order: the result is deterministic.
#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/indexing/cuda/chosen_places.cuh"

namespace espalier::cu {

namespace {

constexpr int64_t most_keys_in_tile = 4096;  // keys that one block sorts: 32 KiB of shared memory

/// An index with its position in the low bits. Keys are unique, so the sorted order is, too.
using Key = unsigned long long;

/// Bitonic sort of a block's keys; `tile` is a power of two. All threads of the block call it.
__device__ void sort_tile(Key* keys, int tile) {
  const int own = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
  for (int run = 2; run <= tile; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int i = own; i < tile / 2; i += all) {
        const int low = 2 * i - (i & (apart - 1)), high = low + apart;
        const Key a = keys[low], b = keys[high];
        if ((a > b) == ((low & run) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  __syncthreads();
}

/// Sorts each tile of keys.
__global__ void __launch_bounds__(1024) sort_tiles(IndexList indices, bool from_end, int64_t count,
                                                   int64_t size, int shift, int tile, Key* __restrict__ out) {
  Key* const keys = dynamic_shared<Key>();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tile;
  const int own = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
  for (int i = own; i < tile; i += all)
    keys[i] = first + i < count ? static_cast<Key>(indices.at(first + i, size, from_end)) << shift |
                                      static_cast<Key>(first + i)
                                : ~Key{0};
  sort_tile(keys, tile);
  for (int i = own; i < tile && first + i < count; i += all) out[first + i] = keys[i];
}

/// Merges adjacent sorted runs: each key goes behind the smaller keys of the other run.
__global__ void __launch_bounds__(threads_in_block)
    merge_runs(const Key* __restrict__ in, Key* __restrict__ out, int64_t count, int64_t run) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t number = divide(i, run), pair = number / 2 * 2 * run;
    int64_t low = min((number ^ 1) * run, count), high = min(low + run, count);
    const int64_t other = low;
    const Key key = in[i];
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (in[middle] < key)
        low = middle + 1;
      else
        high = middle;
    }
    out[pair + (i - number * run) + (low - other)] = key;
  }
}

/// What V columns are before the first term: zeros for a sum, else what is at their place.
template <class F, int V, class T>
__device__ __forceinline__ Several<T, V> before_terms(const Several<T, V>* place) {
  if constexpr (std::is_same_v<F, scalar::Add>) {
    Several<T, V> zeros;
#pragma unroll
    for (int v = 0; v < V; ++v) zeros.at[v] = T(0);
    return zeros;
  } else {
    return *place;
  }
}

/// V columns of `start` and of all terms of one row, whose first key is keys[first], folded by F: their sum
/// or one of them.
template <class F, int V, class T>
__device__ __forceinline__ Several<T, V> fold_terms(const Several<T, V>& start, const Key* keys,
                                                    const Several<T, V>* from, int64_t first, int64_t count,
                                                    int64_t units, int shift) {
  using C = Computed<T>;
  constexpr int batch = 8;  // reads in flight for each thread
  const Key positions = (Key{1} << shift) - 1, row = keys[first] >> shift;
  C folded[V];
#pragma unroll
  for (int v = 0; v < V; ++v) folded[v] = static_cast<C>(start.at[v]);
  bool more = true;
  for (int64_t begin = first; more; begin += batch) {
    Several<T, V> read[batch];
    bool ours[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const Key key = keys[min(begin + k, count - 1)];
      ours[k] = begin + k < count && key >> shift == row;
      if (ours[k]) read[k] = from[static_cast<int64_t>(key & positions) * units];
    }
#pragma unroll
    for (int k = 0; k < batch; ++k)
      if (ours[k])
#pragma unroll
        for (int v = 0; v < V; ++v) folded[v] = F()(folded[v], static_cast<C>(read[k].at[v]));
    more = ours[batch - 1];
  }
  Several<T, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) result.at[v] = static_cast<T>(folded[v]);
  return result;
}

/// Folds [outer, count, inner] into [outer, size, inner]. The thread at the first key of a row folds V
/// columns of all its terms.
template <class F, int V, class T>
__global__ void __launch_bounds__(threads_in_block)
    fold_rows(const Key* __restrict__ keys, const T* __restrict__ in, T* __restrict__ out, int64_t outer,
              int64_t count, int64_t size, int64_t units, int shift) {
  using Unit = Several<T, V>;
  for (int64_t i = grid_thread(); i < outer * count * units; i += grid_threads()) {
    const int64_t place = divide(i, units), unit = i - place * units;
    const int64_t block = divide(place, count), first = place - block * count;
    const Key row = keys[first] >> shift;
    if (first > 0 && keys[first - 1] >> shift == row) continue;
    const Unit* from = reinterpret_cast<const Unit*>(in) + block * count * units + unit;
    Unit* to = reinterpret_cast<Unit*>(out) + (block * size + static_cast<int64_t>(row)) * units + unit;
    *to = fold_terms<F, V, T>(before_terms<F, V, T>(to), keys, from, first, count, units, shift);
  }
}

/// The same for outer = 1, with the sum of a row at the place of its first key and `rows` for what is where:
/// zeros and `size` at the other keys.
template <int V, class T>
__global__ void __launch_bounds__(threads_in_block)
    sum_rows_of(const Key* __restrict__ keys, const T* __restrict__ in, T* __restrict__ out,
                int64_t* __restrict__ rows, int64_t count, int64_t size, int64_t units, int shift) {
  using Unit = Several<T, V>;
  for (int64_t i = grid_thread(); i < count * units; i += grid_threads()) {
    const int64_t place = divide(i, units), unit = i - place * units;
    const Key row = keys[place] >> shift;
    const bool is_first = place == 0 || keys[place - 1] >> shift != row;
    Unit sum = before_terms<scalar::Add, V, T>(nullptr);
    if (is_first)
      sum = fold_terms<scalar::Add, V, T>(sum, keys, reinterpret_cast<const Unit*>(in) + unit, place, count,
                                          units, shift);
    reinterpret_cast<Unit*>(out)[i] = sum;
    if (unit == 0) rows[place] = is_first ? static_cast<int64_t>(row) : size;
  }
}

/// The sorted keys of a list of indices. Sorted tiles are merged, alternating between two buffers.
class SortedKeys {
 public:
  SortedKeys(const IndexList& indices, bool from_end, int64_t count, int64_t size, Device device,
             std::string_view op)
      : indices_(indices),
        from_end_(from_end),
        count_(count),
        size_(size),
        shift_(std::bit_width(static_cast<uint64_t>(count - 1))),
        tile_(std::clamp<int64_t>(power_from(count), 64, most_keys_in_tile)) {
    if (std::bit_width(static_cast<uint64_t>(size)) + shift_ > 63)
      throw UnsupportedError(std::string(op) + ": " + std::to_string(count) +
                             " indices into an axis of size " + std::to_string(size) +
                             " are too many for a GPU");
    const Shape bytes{count * static_cast<int64_t>(sizeof(Key))};
    keys_ = Tensor(bytes, boolean, device);
    if (count > tile_) other_ = Tensor(bytes, boolean, device);
  }

  int shift() const { return shift_; }
  /// Launches the sort, and returns the address of the sorted keys.
  const Key* sort() const {
    const Grid tiles{dim3(static_cast<unsigned>(divide_up(count_, tile_))),
                     dim3(static_cast<unsigned>(std::min<int64_t>(tile_ / 2, 1024))),
                     static_cast<size_t>(tile_) * sizeof(Key)};
    Key *from = static_cast<Key*>(keys_.address()), *to = nullptr;
    launch(sort_tiles, tiles, indices_, from_end_, count_, size_, shift_, tile_, from);
    if (other_.defined()) to = static_cast<Key*>(other_.address());
    for (int64_t run = tile_; run < count_; run *= 2) {
      launch(merge_runs, grid_for(count_), from, to, count_, run);
      std::swap(from, to);
    }
    return from;
  }

 private:
  IndexList indices_;
  bool from_end_;
  int64_t count_, size_;
  int shift_;
  int64_t tile_;
  Tensor keys_, other_;
};

/// The operands of a fold. The output begins as `start`, or as zeros.
struct FoldOperands {
  const Tensor *values, *list, *start;
  Tensor* out;
  std::string function;  ///< that the user called, for errors
  bool from_end = true;

  void begin() const {
    if (!start)
      zero_elements(*out);
    else if (out->address() != start->address())
      copy_elements(*start, *out);
  }
};

/// Deterministic: terms are folded in the order of the indices.
template <class F>
Bound bind_fold_rows(const Op& op, const KernelCall& call, const FoldOperands& operands) {
  Tensor& out = *operands.out;
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), out.rank(), op.name());
  const Tensor& list = *operands.list;
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < out.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : out.shape().dims()[i];
  const int64_t size = out.shape().dims()[axis], count = list.elements();
  if (out.elements() == 0) return bind_look(call, list, size, operands.function, operands.from_end);
  if (count == 0) return bound([operands](RandomStream) { operands.begin(); });
  ContiguousInput values(*operands.values), places(list);
  const SortedKeys keys(index_list(call, list, places, operands.function), operands.from_end, count, size,
                        out.device(), operands.function);
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, values = std::move(values), places = std::move(places)](RandomStream) mutable {
        values.refresh();
        places.refresh();
        operands.begin();
        const T* in = static_cast<const T*>(values.address());
        T* folded = static_cast<T*>(operands.out->address());
        constexpr int width = vector_width<T>;
        const bool vectors = in_vectors<T>(in, inner) && in_vectors<T>(folded, inner);
        const int64_t units = vectors ? inner / width : inner;
        launch(vectors ? fold_rows<F, width, T> : fold_rows<F, 1, T>, grid_for(outer * count * units),
               keys.sort(), in, folded, outer, count, size, units, keys.shift());
      });
  });
  return result;
}

/// Indices along an axis of [outer, count, inner], whose lines are sorted one by one: a line has the indices
/// of one outer and one inner place.
struct IndexLines {
  int64_t count, size, inner;

  /// What comes before element k of a line, in elements, where the axis has `length` and elements are `inner`
  /// apart.
  __device__ int64_t begin(int64_t line, int64_t length) const {
    const int64_t outer = divide(line, inner);
    return outer * length * inner + (line - outer * inner);
  }
};

/// Sorts the keys of each line: a block for each, and lines in turn.
__global__ void __launch_bounds__(1024)
    sort_lines(const __grid_constant__ ChosenPlaces chosen, IndexLines form, int64_t lines, int shift,
               int tile, Key* __restrict__ out) {
  Key* const keys = dynamic_shared<Key>();
  const int own = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
  const int count = static_cast<int>(form.count);
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const int64_t begin = form.begin(line, count);
    for (int i = own; i < tile; i += all) {
      keys[i] = ~Key{0};
      if (i >= count) continue;
      const int64_t index = chosen.list.at(chosen.steps.offset(begin + i * form.inner), form.size, true);
      keys[i] = static_cast<Key>(index) << shift | static_cast<Key>(i);
    }
    sort_tile(keys, tile);
    for (int i = own; i < count; i += all) out[line * count + i] = keys[i];
    __syncthreads();  // before the next line
  }
}

/// Folds [outer, count, inner] into [outer, size, inner]: the thread at the first key of a place folds all of
/// its terms.
template <class F, class T>
__global__ void __launch_bounds__(threads_in_block)
    fold_lines(const Key* __restrict__ keys, const T* __restrict__ in, T* __restrict__ out, IndexLines form,
               int64_t lines, int shift) {
  for (int64_t i = grid_thread(); i < lines * form.count; i += grid_threads()) {
    const int64_t line = divide(i, form.count), first = i - line * form.count;
    const Key* const own = keys + line * form.count;
    const Key place = own[first] >> shift;
    if (first > 0 && own[first - 1] >> shift == place) continue;
    using Unit = Several<T, 1>;
    const auto* from = reinterpret_cast<const Unit*>(in) + form.begin(line, form.count);
    auto* to =
        reinterpret_cast<Unit*>(out) + form.begin(line, form.size) + static_cast<int64_t>(place) * form.inner;
    *to = fold_terms<F, 1, T>(before_terms<F, 1, T>(to), own, from, first, form.count, form.inner, shift);
  }
}

/// A fold along an axis with so few indices in a line that a block sorts them.
template <class F>
Bound bind_fold_lines(const FoldOperands& operands, const ChosenPlaces& chosen) {
  const Tensor &out = *operands.out, &x = *operands.values;
  const IndexLines form{chosen.count, chosen.size, chosen.inner};
  const int64_t lines = x.elements() / form.count;
  const int shift = std::bit_width(static_cast<uint64_t>(form.count - 1));
  const int64_t tile = std::max<int64_t>(power_from(form.count), 64);
  const Grid blocks{dim3(static_cast<unsigned>(std::min<int64_t>(lines, 1 << 20))),
                    dim3(static_cast<unsigned>(std::min<int64_t>(tile / 2, 1024))),
                    static_cast<size_t>(tile) * sizeof(Key)};
  const Tensor keys({x.elements() * static_cast<int64_t>(sizeof(Key))}, boolean, out.device());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, values = ContiguousInput(x)](RandomStream) mutable {
        values.refresh();
        operands.begin();
        auto* sorted = static_cast<Key*>(keys.address());
        launch(sort_lines, blocks, chosen, form, lines, shift, static_cast<int>(tile), sorted);
        launch(fold_lines<F, T>, grid_for(lines * form.count), sorted,
               static_cast<const T*>(values.address()), static_cast<T*>(operands.out->address()), form, lines,
               shift);
      });
  });
  return result;
}

/// The places of chosen elements as indices into the tensor, seen as one axis.
__global__ void __launch_bounds__(threads_in_block)
    list_places(int64_t* __restrict__ out, const __grid_constant__ ChosenPlaces chosen, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = chosen.place(i).element;
}

/// Folds the elements of one place as bind_fold_rows the slices of one index.
template <class F>
Bound bind_fold_along(const Op& op, const KernelCall& call, const FoldOperands& operands) {
  Tensor& out = *operands.out;
  const Tensor &x = *operands.values, &list = *operands.list;
  const Chosen form{attribute<int64_t>(op, "axis"), true};
  const size_t axis = resolve_axis(form.axis, out.rank(), op.name());
  const int64_t n = x.elements(), elements = out.elements();
  if (elements == 0) return bind_look(call, list, out.shape().dims()[axis], operands.function, true);
  if (n == 0) return bound([operands](RandomStream) { operands.begin(); });
  const ChosenPlaces chosen = chosen_places(call, form, out.shape(), list, x.shape(), operands.function);
  if (chosen.count <= most_keys_in_tile) return bind_fold_lines<F>(operands, chosen);
  ContiguousInput values(x);
  Tensor places({n}, int64, out.device());
  const SortedKeys keys({places.address(), true, chosen.list.report}, true, n, elements, out.device(),
                        operands.function);
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, values = std::move(values)](RandomStream) mutable {
        values.refresh();
        operands.begin();
        launch(list_places, grid_for(n), static_cast<int64_t*>(places.address()), chosen, n);
        launch(fold_rows<F, 1, T>, grid_for(n), keys.sort(), static_cast<const T*>(values.address()),
               static_cast<T*>(operands.out->address()), int64_t{1}, n, elements, int64_t{1}, keys.shift());
      });
  });
  return result;
}

Bound bind_scatter_add_like(const Op& op, const KernelCall& call) {
  return bind_fold_rows<scalar::Add>(
      op, call,
      {call.inputs[0], call.inputs[1], nullptr, call.outputs[0], attribute<std::string>(op, "function"),
       attribute<bool>(op, "from_end")});
}
Bound bind_add_along_axis_like(const Op& op, const KernelCall& call) {
  return bind_fold_along<scalar::Add>(
      op, call,
      {call.inputs[0], call.inputs[1], nullptr, call.outputs[0], attribute<std::string>(op, "function")});
}
template <class F>
Bound bind_extreme(const Op& op, const KernelCall& call) {
  const FoldOperands operands{call.inputs[2], call.inputs[1], call.inputs[0], call.outputs[0],
                              std::string(op.name())};
  return attribute<bool>(op, "along") ? bind_fold_along<F>(op, call, operands)
                                      : bind_fold_rows<F>(op, call, operands);
}

/// Fills all places with "no row".
__global__ void __launch_bounds__(threads_in_block) fill_rows(int64_t* rows, int64_t count, int64_t size) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) rows[i] = size;
}

Bound bind_sum_rows(const KernelCall& call) {
  Tensor &out = *call.outputs[0], &rows = *call.outputs[1];
  const Tensor &x = *call.inputs[0], &list = *call.inputs[1];
  const int64_t count = list.elements(), size = call.inputs[2]->shape().dims()[0];
  if (count == 0) return bound([](RandomStream) {});
  const int64_t inner = out.elements() / count;
  if (inner == 0 || size == 0)
    return bound([=, to = &rows](RandomStream) {
      launch(fill_rows, grid_for(count), static_cast<int64_t*>(to->address()), count, size);
    });
  ContiguousInput values(x), places(list);
  const SortedKeys keys(index_list(call, list, places, "gather"), true, count, size, out.device(), "gather");
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, to = &out, which = &rows, values = std::move(values),
                      places = std::move(places)](RandomStream) mutable {
        values.refresh();
        places.refresh();
        const T* in = static_cast<const T*>(values.address());
        T* sums = static_cast<T*>(to->address());
        constexpr int width = vector_width<T>;
        const bool vectors = in_vectors<T>(in, inner) && in_vectors<T>(sums, inner);
        const int64_t units = vectors ? inner / width : inner;
        launch(vectors ? sum_rows_of<width, T> : sum_rows_of<1, T>, grid_for(count * units), keys.sort(), in,
               sums, static_cast<int64_t*>(which->address()), count, size, units, keys.shift());
      });
  });
  return result;
}

}  // namespace

void add_scatter_kernels(KernelRegistry& kernels) {
  kernels.add("scatter_add_like", bind_scatter_add_like);
  kernels.add("add_along_axis_like", bind_add_along_axis_like);
  for (const auto* name : {"scatter_max", "max_along_axis"}) kernels.add(name, bind_extreme<scalar::Maximum>);
  for (const auto* name : {"scatter_min", "min_along_axis"}) kernels.add(name, bind_extreme<scalar::Minimum>);
  kernels.add("sum_rows", bind_sum_rows);
}

}  // namespace espalier::cu
