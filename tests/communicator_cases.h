// Helpers of the tests of communicators: every collective against plain loops.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "espalier/executor/communicators/communicator.h"

namespace espalier::testing {

/// Element `i` of a rank: numbers whose sums depend on their order, and which differ between ranks.
inline double element_of(int rank, int64_t i, DType dtype) {
  const auto mixed = static_cast<uint64_t>(i * 64 + rank + 1) * 0x9e3779b97f4a7c15u;
  const int64_t number = static_cast<int64_t>(mixed >> 44) - (1 << 19);
  if (!is_real(dtype)) return static_cast<double>(number);
  return static_cast<double>(number) * std::ldexp(1.0, -static_cast<int>(mixed % 23));
}

inline Tensor values_of(int rank, int64_t elements, DType dtype, int64_t first = 0) {
  Tensor values({elements}, dtype);
  visit_all(dtype, [&]<class T>(TypeTag<T>) {
    T* data = values.data<T>();
    for (int64_t i = 0; i < elements; ++i) data[i] = static_cast<T>(element_of(rank, first + i, dtype));
  });
  return values;
}

/// The reduction over the ranks in order, in the compute type, rounded once. With several `threads` in each
/// process, it reduces over these first.
inline Tensor reduced(int ranks, int64_t elements, DType dtype, Reduction reduction, int64_t first = 0,
                      int threads = 1) {
  Tensor result({elements}, dtype);
  visit_all(dtype, [&]<class T>(TypeTag<T>) {
    using C = compute_t<T>;
    T* data = result.data<T>();
    const auto fold = [&](C sum, C next) {
      switch (reduction) {
        case Reduction::sum:
        case Reduction::mean: return static_cast<C>(sum + next);
        case Reduction::max: return next > sum ? next : sum;
        case Reduction::min: return next < sum ? next : sum;
      }
      return sum;
    };
    for (int64_t i = 0; i < elements; ++i) {
      const auto value = [&](int rank) {
        return static_cast<C>(static_cast<T>(element_of(rank, first + i, dtype)));
      };
      C sum{};
      for (int process = 0; process < ranks; process += threads) {
        C part = value(process);
        for (int rank = process + 1; rank < process + threads; ++rank) part = fold(part, value(rank));
        sum = process == 0 ? part : fold(sum, part);
      }
      if (reduction == Reduction::mean) sum = static_cast<C>(sum / static_cast<C>(ranks));
      data[i] = static_cast<T>(sum);
    }
  });
  return result;
}

/// The sum of the ranks' values times their weights, in the same order.
inline Tensor weighted_sum(const std::vector<double>& weights, int64_t elements, DType dtype,
                           size_t threads = 1) {
  Tensor result({elements}, dtype);
  visit_all(dtype, [&]<class T>(TypeTag<T>) {
    using C = compute_t<T>;
    for (int64_t i = 0; i < elements; ++i) {
      C sum{};
      for (size_t process = 0; process < weights.size(); process += threads) {
        C part{};
        for (size_t rank = process; rank < process + threads; ++rank)
          if (weights[rank] != 0) {
            const C value = static_cast<C>(static_cast<T>(element_of(static_cast<int>(rank), i, dtype)));
            part = static_cast<C>(part + static_cast<C>(weights[rank]) * value);
          }
        sum = static_cast<C>(sum + part);
      }
      result.data<T>()[i] = static_cast<T>(sum);
    }
  });
  return result;
}

/// A tensor of NaN.
inline Tensor nan_values(int64_t elements, DType dtype) {
  Tensor values({elements}, dtype);
  visit_all(dtype, [&]<class T>(TypeTag<T>) {
    for (T& value : values.span<T>()) value = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  });
  return values;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && (a.bytes() == 0 || std::memcmp(a.address(), b.address(), a.bytes()) == 0);
}

/// Bounds of the ranks' ranges: equal, all elements at one rank, and growing.
inline std::vector<std::vector<int64_t>> bounds_of_parts(int ranks, int64_t elements) {
  std::vector<std::vector<int64_t>> all(3);
  for (int64_t r = 0; r <= ranks; ++r) {
    all[0].push_back(elements * r / ranks);
    all[1].push_back(2 * r > ranks ? elements : 0);
    all[2].push_back(elements * r * r / (ranks * ranks));
  }
  return all;
}

/// Calls every collective on this rank, and returns a description of wrong results, or "". `threads`: as
/// above; rank r has `weight` times r + 1.
inline std::string check_collectives(Communicator& communicator, int64_t elements, DType dtype,
                                     int threads = 1, double weight = 0.3) {
  const int rank = communicator.rank(), size = communicator.size();
  std::string wrong;
  const auto expect = [&](const Tensor& result, const Tensor& expected, const std::string& what) {
    if (!same_bits(result, expected))
      wrong += what + " of " + std::to_string(elements) + " " + std::string(name(dtype)) + " on rank " +
               std::to_string(rank) + " of " + std::to_string(size) + "; ";
  };
  for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min}) {
    if (reduction == Reduction::mean && !is_real(dtype)) continue;
    const std::string by(name(reduction));
    Tensor values = values_of(rank, elements, dtype);
    communicator.all_reduce(values, reduction);
    expect(values, reduced(size, elements, dtype, reduction, 0, threads), "all_reduce by " + by);

    const Tensor all = values_of(rank, elements * size, dtype);
    Tensor part({elements}, dtype);
    communicator.reduce_scatter(all, part, reduction);
    expect(part, reduced(size, elements, dtype, reduction, elements * rank, threads),
           "reduce_scatter by " + by);
    expect(all, values_of(rank, elements * size, dtype), "what reduce_scatter by " + by + " read");
  }
  if (is_real(dtype)) {
    const auto count = static_cast<size_t>(size), each = static_cast<size_t>(threads);
    std::vector<double> weights(count, 1);
    Tensor values = values_of(rank, elements, dtype);
    communicator.all_reduce_weighted(values, weights);
    expect(values, reduced(size, elements, dtype, Reduction::sum, 0, threads), "all_reduce_weighted by ones");

    for (size_t i = 0; i < count; ++i) weights[i] = weight * static_cast<double>(i + 1);
    values = values_of(rank, elements, dtype);
    communicator.all_reduce_weighted(values, weights);
    expect(values, weighted_sum(weights, elements, dtype, each), "all_reduce_weighted");

    for (size_t none = 0; none < count; ++none) {
      std::vector<double> others = weights;
      others[none] = 0;
      values =
          rank == static_cast<int>(none) ? nan_values(elements, dtype) : values_of(rank, elements, dtype);
      communicator.all_reduce_weighted(values, others);
      expect(values, weighted_sum(others, elements, dtype, each), "all_reduce_weighted without a rank");
    }
    values = nan_values(elements, dtype);
    communicator.all_reduce_weighted(values, std::vector<double>(count, 0));
    expect(values, weighted_sum(std::vector<double>(count, 0), elements, dtype), "all_reduce_weighted by 0");

    for (const auto& bounds : bounds_of_parts(size, elements))
      for (const bool all : {true, false}) {
        std::vector<double> some = weights;
        if (!all) some[0] = 0;
        values = rank == 0 && !all ? nan_values(elements, dtype) : values_of(rank, elements, dtype);
        communicator.reduce_parts(values, bounds, some);
        const int64_t begin = bounds[static_cast<size_t>(rank)], end = bounds[static_cast<size_t>(rank) + 1];
        expect(values.slice(0, begin, end).clone(),
               weighted_sum(some, elements, dtype, each).slice(0, begin, end).clone(), "reduce_parts");
      }
  }
  const Tensor mine = values_of(rank, elements, dtype);
  Tensor gathered({size, elements}, dtype);
  communicator.all_gather(mine, gathered);
  for (int other = 0; other < size; ++other)
    expect(gathered.slice(0, other, other + 1).reshape({elements}), values_of(other, elements, dtype),
           "all_gather");
  for (const auto& bounds : bounds_of_parts(size, elements)) {
    Tensor values = values_of(rank, elements, dtype);
    communicator.gather_parts(values, bounds);
    for (int other = 0; other < size; ++other) {
      const int64_t begin = bounds[static_cast<size_t>(other)], end = bounds[static_cast<size_t>(other) + 1];
      expect(values.slice(0, begin, end).clone(),
             values_of(other, elements, dtype).slice(0, begin, end).clone(), "gather_parts");
    }
  }
  for (int root = 0; root < size; ++root) {
    Tensor values = values_of(rank, elements, dtype);
    communicator.broadcast(values, root);
    expect(values, values_of(root, elements, dtype), "broadcast");
  }
  communicator.barrier();
  return wrong;
}

}  // namespace espalier::testing
