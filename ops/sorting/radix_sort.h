// Sorting of keys with their positions on the CPU. The positions are part of the order, so it is total: any
// method gives the stable order.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/sorting/order_key.h"

namespace espalier {

/// A key of 32 bits with a position below 2³².
struct NarrowItem {
  using Key = uint32_t;
  uint64_t bits;
  static NarrowItem of(Key key, int64_t at) { return {uint64_t{key} << 32 | static_cast<uint64_t>(at)}; }
  Key key() const { return static_cast<Key>(bits >> 32); }
  int64_t at() const { return static_cast<int64_t>(bits & 0xffffffffu); }
  friend bool operator<(NarrowItem a, NarrowItem b) { return a.bits < b.bits; }
};
struct WideItem {
  using Key = uint64_t;
  Key number;
  int64_t position;
  static WideItem of(Key key, int64_t at) { return {key, at}; }
  Key key() const { return number; }
  int64_t at() const { return position; }
  friend bool operator<(WideItem a, WideItem b) {
    return a.number != b.number ? a.number < b.number : a.position < b.position;
  }
};

namespace detail {

/// Sorts by digits of `digit_bits` of the keys, the lowest first. The items come in the order of their
/// positions; they end in `items` or in `scratch`, which is returned.
template <int digit_bits, class Item>
Item* sort_by_digits(Item* items, Item* scratch, int64_t n) {
  using Key = typename Item::Key;
  constexpr int key_bits = 8 * sizeof(Key), digits = (key_bits + digit_bits - 1) / digit_bits;
  constexpr size_t values = size_t{1} << digit_bits;
  constexpr Key mask = static_cast<Key>(values - 1);
  std::vector<std::array<int64_t, values>> counts(digits);
  for (auto& of_digit : counts) of_digit.fill(0);
  for (int64_t i = 0; i < n; ++i) {
    const Key key = items[i].key();
    for (int d = 0; d < digits; ++d) ++counts[static_cast<size_t>(d)][key >> (d * digit_bits) & mask];
  }
  for (int d = 0; d < digits; ++d) {
    auto& begins = counts[static_cast<size_t>(d)];
    if (begins[items[0].key() >> (d * digit_bits) & mask] == n) continue;  // all keys have the same digit
    int64_t before = 0;
    for (int64_t& count : begins) before += std::exchange(count, before);
    for (int64_t i = 0; i < n; ++i) scratch[begins[items[i].key() >> (d * digit_bits) & mask]++] = items[i];
    std::swap(items, scratch);
  }
  return items;
}

/// Elements `begin` to `end` of what merging two sorted ranges gives.
template <class Item>
void merge_part(const Item* a, int64_t na, const Item* b, int64_t nb, Item* out, int64_t begin, int64_t end) {
  const auto taken_from_a = [=](int64_t position) {
    int64_t low = std::max<int64_t>(0, position - nb), high = std::min(position, na);
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (a[middle] < b[position - middle - 1])
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  const int64_t first = taken_from_a(begin), last = taken_from_a(end);
  std::merge(a + first, a + last, b + (begin - first), b + (end - last), out + begin);
}

}  // namespace detail

/// Sorts items that come in the order of their positions, in this thread. Returns `items` or `scratch`,
/// whichever has the result.
template <class Item>
Item* sort_items(Item* items, Item* scratch, int64_t n) {
  if (n <= (sizeof(Item) == 8 ? 256 : 1024)) {
    std::sort(items, items + n);
    return items;
  }
  if (n < 16 * 1024) return detail::sort_by_digits<8>(items, scratch, n);
  return detail::sort_by_digits<11>(items, scratch, n);
}

/// The same on several threads, if it is long: each sorts a range, and then pairs of ranges are merged.
template <class Item>
Item* sort_items_shared(Item* items, Item* scratch, int64_t n) {
  constexpr int64_t least = 128 * 1024;
  const int64_t threads = std::min<int64_t>(num_threads(), n / least);
  if (threads < 2) return sort_items(items, scratch, n);
  int64_t ranges = 1;
  while (2 * ranges <= threads) ranges *= 2;
  const auto bound = [=](int64_t r) { return n * r / ranges; };
  parallel_for(ranges, 1, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      Item *range = items + bound(r),
           *result = sort_items(range, scratch + bound(r), bound(r + 1) - bound(r));
      if (result != range) std::copy_n(result, bound(r + 1) - bound(r), range);
    }
  });
  for (int64_t width = 1; width < ranges; width *= 2) {
    for (int64_t r = 0; r < ranges; r += 2 * width) {
      const int64_t begin = bound(r), middle = bound(r + width), end = bound(r + 2 * width);
      const Item* from = items;
      Item* to = scratch;
      parallel_for(end - begin, least / 4, [=](int64_t first, int64_t last) {
        detail::merge_part(from + begin, middle - begin, from + middle, end - middle, to + begin, first,
                           last);
      });
    }
    std::swap(items, scratch);
  }
  return items;
}

}  // namespace espalier
