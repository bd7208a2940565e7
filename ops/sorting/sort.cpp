// Sorting, and selection of elements by their rank.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/selecting_op.h"
#include "espalier/ops/sorting/radix_sort.h"

namespace espalier {

namespace {

/// Calls `f(Item())` with the type of items for rows of n elements of type T.
template <class T, class F>
void with_item_type(int64_t n, F&& f) {
  if (sizeof(OrderKey<T>) == 4 && n <= int64_t{std::numeric_limits<uint32_t>::max()})
    f(NarrowItem());
  else
    f(WideItem());
}

/// Uninitialized memory for items.
template <class Item>
std::unique_ptr<Item[]> new_items(int64_t n) {
  return std::make_unique_for_overwrite<Item[]>(static_cast<size_t>(n));
}

template <class Item, class T>
void make_items(const T* row, int64_t n, bool descending, Item* items) {
  const auto flip = descending ? ~OrderKey<T>(0) : OrderKey<T>(0);
  for (int64_t i = 0; i < n; ++i) items[i] = Item::of(order_key(row[i]) ^ flip, i);
}

class Sort : public SelectingOp {
 public:
  explicit Sort(bool descending) : descending_(descending) {}
  std::string_view name() const override { return "sort"; }
  Attributes attributes() const override { return {{"descending", descending_}}; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1], rows = rows_along_last(x.shape());
    if (x.elements() == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      with_item_type<T>(n, [&]<class Item>(Item) {
        const T* in = static_cast<const T*>(x.address());
        T* values = detail::output<T>(call);
        int64_t* indices = detail::output<int64_t>(call, 1);
        const auto write = [=](const Item* sorted, int64_t row, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t at = sorted[i].at();
            values[row * n + i] = in[row * n + at];
            indices[row * n + i] = at;
          }
        };
        if (rows == 1) {
          const auto items = new_items<Item>(n), scratch = new_items<Item>(n);
          parallel_for(n, detail::grain, [&, to = items.get()](int64_t begin, int64_t end) {
            const auto flip = descending_ ? ~OrderKey<T>(0) : OrderKey<T>(0);
            for (int64_t i = begin; i < end; ++i) to[i] = Item::of(order_key(in[i]) ^ flip, i);
          });
          const Item* sorted = sort_items_shared(items.get(), scratch.get(), n);
          parallel_for(n, detail::grain, [&](int64_t begin, int64_t end) { write(sorted, 0, begin, end); });
          return;
        }
        parallel_for(rows, std::max<int64_t>(1, detail::grain / (8 * n)), [&](int64_t begin, int64_t end) {
          const auto items = new_items<Item>(n), scratch = new_items<Item>(n);
          for (int64_t row = begin; row < end; ++row) {
            make_items(in + row * n, n, descending_, items.get());
            write(sort_items(items.get(), scratch.get(), n), row, 0, n);
          }
        });
      });
    });
  }

 private:
  bool descending_;
};

class TopK : public SelectingOp {
 public:
  TopK(int64_t k, bool largest) : k_(k), largest_(largest) {}
  std::string_view name() const override { return "topk"; }
  Attributes attributes() const override { return {{"k", k_}, {"largest", largest_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_has_axis(*in[0], name());
    if (k_ < 0 || k_ > in[0]->shape[-1])
      throw IndexError(
          fmt::format("topk: k is {}, but an axis of size {} is selected from", k_, in[0]->shape[-1]));
    return SelectingOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1], k = k_;
    if (x.elements() == 0 || k == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      with_item_type<T>(n, [&]<class Item>(Item) {
        const T* in = static_cast<const T*>(x.address());
        T* values = detail::output<T>(call);
        int64_t* indices = detail::output<int64_t>(call, 1);
        parallel_for(rows_along_last(x.shape()), std::max<int64_t>(1, detail::grain / n),
                     [&](int64_t begin, int64_t end) {
                       std::vector<Item> items;
                       for (int64_t row = begin; row < end; ++row) {
                         select(in + row * n, n, items);
                         for (int64_t i = 0; i < k; ++i) {
                           const int64_t at = items[static_cast<size_t>(i)].at();
                           values[row * k + i] = in[row * n + at];
                           indices[row * k + i] = at;
                         }
                       }
                     });
      });
    });
  }

 private:
  int64_t row_size(const Shape&) const override { return k_; }
  /// The first k items of the sorted row.
  template <class Item, class T>
  void select(const T* row, int64_t n, std::vector<Item>& items) const {
    if (k_ <= 1024 && k_ <= n / 16) {  // a heap with the last one of the best on top
      const auto flip = largest_ ? ~OrderKey<T>(0) : OrderKey<T>(0);
      items.resize(static_cast<size_t>(k_));
      make_items(row, k_, largest_, items.data());
      std::make_heap(items.begin(), items.end());
      auto worst = items.front().key();
      for (int64_t i = k_; i < n; ++i) {
        const auto key = order_key(row[i]) ^ flip;
        if (key >= worst) continue;  // of equal ones the first stays
        std::pop_heap(items.begin(), items.end());
        items.back() = Item::of(key, i);
        std::push_heap(items.begin(), items.end());
        worst = items.front().key();
      }
      std::sort_heap(items.begin(), items.end());
      return;
    }
    items.resize(static_cast<size_t>(n));
    make_items(row, n, largest_, items.data());
    if (k_ < n) std::nth_element(items.begin(), items.begin() + k_, items.end());
    std::sort(items.begin(), items.begin() + k_);
  }

  int64_t k_;
  bool largest_;
};

/// The k-th smallest element, or without k the median.
class KthValue : public SelectingOp {
 public:
  explicit KthValue(std::optional<int64_t> k) : k_(k) {}
  std::string_view name() const override { return k_ ? "kthvalue" : "median"; }
  Attributes attributes() const override {
    if (!k_) return {};
    return {{"k", *k_}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_has_axis(*in[0], name());
    const int64_t n = in[0]->shape[-1];
    if (!k_ && n == 0)
      throw ShapeError(fmt::format("median: the axis is empty (shape {})", in[0]->shape.str()));
    if (k_ && (*k_ < 1 || *k_ > n))
      throw IndexError(fmt::format("kthvalue: k is {}, but the axis has {} elements", *k_, n));
    return SelectingOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    if (x.elements() == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        const T* in = static_cast<const T*>(x.address());
        T* values = detail::output<T>(call);
        int64_t* indices = detail::output<int64_t>(call, 1);
        parallel_for(rows_along_last(x.shape()), std::max<int64_t>(1, detail::grain / (4 * n)),
                     [&](int64_t begin, int64_t end) {
                       std::vector<OrderKey<T>> keys;
                       for (int64_t row = begin; row < end; ++row) {
                         const T* from = in + row * n;
                         const OrderKey<T> key = select(from, n, keys);
                         int64_t at = 0;
                         while (order_key(from[at]) != key) ++at;
                         values[row] = from[at];
                         indices[row] = at;
                       }
                     });
      }
    });
  }

 private:
  static constexpr int64_t block = 1024;

  int64_t row_size(const Shape&) const override { return 1; }
  /// Returns whether there is a NaN.
  template <class T>
  static bool find_keys(const T* row, int64_t n, OrderKey<T>* keys) {
    bool has_nan = false;
    bool* const found = &has_nan;
    vectorized([=]() __attribute__((always_inline)) {
      OrderKey<T> nans = 0;
      for (int64_t i = 0; i < n; ++i) {
        keys[i] = order_key(row[i]);
        nans |= static_cast<OrderKey<T>>(row[i] != row[i]);
      }
      *found = nans != 0;
    });
    return has_nan;
  }
  template <class T>
  OrderKey<T> select(const T* row, int64_t n, std::vector<OrderKey<T>>& keys) const {
    using Key = OrderKey<T>;
    int64_t rank = k_ ? *k_ - 1 : (n - 1) / 2;
    bool has_nan = false;
    if (n < block) {
      keys.resize(static_cast<size_t>(n));
      has_nan = find_keys(row, n, keys.data());
    } else {  // only the keys whose first bits are those of the result
      constexpr int shift = 8 * sizeof(Key) - 12;
      std::array<Key, block> some;
      std::array<int64_t, 4096> counts{};
      for (int64_t begin = 0; begin < n; begin += block) {
        const int64_t count = std::min(block, n - begin);
        has_nan |= find_keys(row + begin, count, some.data());
        for (int64_t i = 0; i < count; ++i) ++counts[some[static_cast<size_t>(i)] >> shift];
      }
      Key first = 0;
      while (rank >= counts[first]) rank -= counts[first++];
      keys.resize(static_cast<size_t>(counts[first]) + 1);
      size_t kept = 0;
      for (int64_t begin = 0; begin < n; begin += block) {
        const int64_t count = std::min(block, n - begin);
        (void)find_keys(row + begin, count, some.data());
        for (int64_t i = 0; i < count; ++i) {  // without a branch, which could not be predicted
          keys[kept] = some[static_cast<size_t>(i)];
          kept += keys[kept] >> shift == first;
        }
      }
      keys.pop_back();
    }
    if (!k_ && has_nan) return ~Key(0);
    std::nth_element(keys.begin(), keys.begin() + rank, keys.end());
    return keys[static_cast<size_t>(rank)];
  }

  std::optional<int64_t> k_;
};

ValuesAndIndices kth_along(std::optional<int64_t> k, const Operand& x, int64_t axis, bool keep_dims) {
  ValuesAndIndices found = select_along<ValuesAndIndices>(std::make_shared<KthValue>(k), x, axis);
  if (keep_dims) return found;
  const CallScope scope(x.where(), k ? "kthvalue" : "median");
  return {squeeze(found.values, axis), squeeze(found.indices, axis)};
}

}  // namespace

ValuesAndIndices sort(const Operand& x, int64_t axis, bool descending) {
  return select_along<ValuesAndIndices>(std::make_shared<Sort>(descending), x, axis);
}
Variable argsort(const Operand& x, int64_t axis, bool descending) {
  return select_along<ValuesAndIndices>(std::make_shared<Sort>(descending), x, axis).indices;
}
ValuesAndIndices topk(const Operand& x, int64_t k, int64_t axis, bool largest) {
  return select_along<ValuesAndIndices>(std::make_shared<TopK>(k, largest), x, axis);
}
ValuesAndIndices kthvalue(const Operand& x, int64_t k, int64_t axis, bool keep_dims) {
  return kth_along(k, x, axis, keep_dims);
}
ValuesAndIndices median(const Operand& x, int64_t axis, bool keep_dims) {
  return kth_along({}, x, axis, keep_dims);
}
Variable median(const Operand& x) {
  const Variable& v = x.defined("median");
  const CallScope scope(x.where());
  return squeeze(select_along<ValuesAndIndices>(std::make_shared<KthValue>(std::nullopt),
                                                {reshape(v, {-1}), x.where()}, 0)
                     .values);
}

void add_sort_ops(OpRegistry& ops) {
  ops.add("sort", 1, [](AttributeReader& a) { return std::make_shared<Sort>(a.flag("descending")); });
  ops.add("topk", 1, [](AttributeReader& a) {
    const int64_t k = a.integer("k", 0);
    return std::make_shared<TopK>(k, a.flag("largest"));
  });
  ops.add("kthvalue", 1, [](AttributeReader& a) { return std::make_shared<KthValue>(a.integer("k", 1)); });
  ops.add("median", 1, [](AttributeReader&) { return std::make_shared<KthValue>(std::nullopt); });
}

}  // namespace espalier
