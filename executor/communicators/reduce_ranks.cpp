#include "espalier/executor/communicators/reduce_ranks.h"

#include <algorithm>
#include <type_traits>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/scalar.h"

namespace espalier {
namespace {

constexpr int64_t tile = 1024;         // elements whose sums stay in the L1 cache
constexpr int64_t grain = 1 << 16;     // elements that justify a thread
constexpr int64_t line_elements = 64;  // a cache line of bytes

template <class T, class C, class F>
void fold(const T* from, C* sum, int64_t n, const F& f) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) sum[i] = f(sum[i], static_cast<C>(from[i]));
  });
}

template <class T, class C>
void convert(const C* from, T* to, int64_t n) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  });
}

// Two buffers at once: the start of most sums.
template <class T, class C, class F>
void fold_two(const T* a, const T* b, C* sum, int64_t n, const F& f) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) sum[i] = f(static_cast<C>(a[i]), static_cast<C>(b[i]));
  });
}

// The sums of one tile; `source(rank)` points to a rank's elements of it.
template <class T, class C, class F>
void sum_up(const RankReduction& work, const auto& source, C* sum, int64_t n, const F& f) {
  const size_t ranks = work.from.size();
  if (ranks == 1)
    convert(source(0), sum, n);
  else
    fold_two(source(0), source(1), sum, n, f);
  for (size_t rank = 2; rank < ranks; ++rank) fold(source(rank), sum, n, f);
}

// The file is compiled without contraction to fused multiply-adds, so the bits are the same on all machines.
template <class T, class C>
void sum_up_weighted(const RankReduction& work, const auto& source, C* sum, int64_t n) {
  bool first = true;
  for (size_t rank = 0; rank < work.from.size(); ++rank) {
    if (work.weights[rank] == 0) continue;
    const C weight = static_cast<C>(work.weights[rank]);
    const T* const from = source(rank);
    if (first)
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) sum[i] = weight * static_cast<C>(from[i]);
      });
    else
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) sum[i] += weight * static_cast<C>(from[i]);
      });
    first = false;
  }
  if (first) std::fill(sum, sum + n, C(0));
}

template <class T, class F>
void reduce_range(const RankReduction& work, int64_t begin, int64_t end, const F& f) {
  using C = compute_t<T>;
  alignas(64) C sum[tile];
  for (int64_t at = begin; at < end; at += tile) {
    const int64_t n = std::min(tile, end - at);
    const auto source = [&](size_t rank) { return static_cast<const T*>(work.from[rank]) + work.first + at; };
    if constexpr (std::is_floating_point_v<C>) {
      if (work.weights.empty())
        sum_up<T>(work, source, sum, n, f);
      else
        sum_up_weighted<T>(work, source, sum, n);
      if (work.reduction == Reduction::mean) {
        C* const values = sum;
        const C count = static_cast<C>(work.mean_of ? work.mean_of : static_cast<int>(work.from.size()));
        vectorized([=]() __attribute__((always_inline)) {
          for (int64_t i = 0; i < n; ++i) values[i] /= count;
        });
      }
    } else {
      sum_up<T>(work, source, sum, n, f);
    }
    for (void* to : work.to) {
      if (!work.result || *work.result == work.dtype) {
        convert(sum, static_cast<T*>(to) + work.to_first + at, n);
        continue;
      }
      if constexpr (std::is_floating_point_v<C>)
        visit_all(*work.result, [&]<class U>(TypeTag<U>) {
          if constexpr (std::is_floating_point_v<compute_t<U>>)
            convert(sum, static_cast<U*>(to) + work.to_first + at, n);
        });
    }
  }
}

}  // namespace

RankReduction reduction_of(const Collective& call, std::span<const void* const> from) {
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = from;
  reduction.weights = call.weights;
  return reduction;
}

RankReduction reduction_by_rank(const Collective& call, int rank, std::span<const void* const> from,
                                std::span<void* const> to) {
  RankReduction reduction = reduction_of(call, from);
  const bool whole = call.bounds.empty();
  const auto [begin, count] =
      whole ? chunk(call.elements, static_cast<int>(from.size()), rank) : call.range(rank);
  reduction.first = begin;
  reduction.count = count;
  reduction.to = whole ? to : to.subspan(static_cast<size_t>(rank), 1);
  reduction.to_first = whole ? begin : 0;
  return reduction;
}

void reduce_ranks(const RankReduction& work) {
  visit_all(work.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      parallel_for(work.count, grain, [&](int64_t begin, int64_t end) {
        switch (work.reduction) {
          case Reduction::sum:
          case Reduction::mean: return reduce_range<T>(work, begin, end, scalar::Add());
          case Reduction::max: return reduce_range<T>(work, begin, end, scalar::Maximum());
          case Reduction::min: return reduce_range<T>(work, begin, end, scalar::Minimum());
        }
      });
  });
}

int64_t chunk_begin(int64_t elements, int ranks, int rank) {
  const int64_t lines = (elements + line_elements - 1) / line_elements;
  const int64_t length = (lines + ranks - 1) / ranks * line_elements;
  return std::min(elements, length * rank);
}

Collective::Range chunk(int64_t elements, int ranks, int rank) {
  const int64_t begin = chunk_begin(elements, ranks, rank);
  return {begin, chunk_begin(elements, ranks, rank + 1) - begin};
}

}  // namespace espalier
