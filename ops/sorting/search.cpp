// Search in sorted elements.
#include <algorithm>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/indexing/pick_elements.h"
#include "espalier/ops/last_axis.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/sorting/order_key.h"

namespace espalier {

namespace {

/// Inputs: the sorted elements and the values.
class SearchSorted : public Op {
 public:
  explicit SearchSorted(bool right) : Op({.passes_no_gradient = true}), right_(right) {}
  std::string_view name() const override { return "searchsorted"; }
  Attributes attributes() const override { return {{"right", right_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis + 1 == in[0]->shape.rank();
  }
  Specs infer(const InputSpecs& in) const override {
    check_same_dtype(*in[0], *in[1], name());
    const Shape &sorted = in[0]->shape, &values = in[1]->shape;
    const bool fits = sorted.rank() == 1 || (sorted.rank() > 1 && sorted.rank() == values.rank() &&
                                             std::equal(sorted.begin(), sorted.end() - 1, values.begin()));
    if (!fits)
      throw ShapeError(
          fmt::format("searchsorted: sorted elements of shape {} must be one row, or have the shape of the "
                      "values, {}, but for the last axis",
                      sorted.str(), values.str()));
    return {{DType::int64, values}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor sorted = call.inputs[0]->contiguous_copy(), values = call.inputs[1]->contiguous_copy();
    const int64_t n = sorted.shape()[-1], count = values.elements();
    if (count == 0) return;
    const int64_t in_row = sorted.rank() == 1 ? count : values.shape()[-1];
    visit(sorted.dtype(), [&]<class T>(TypeTag<T>) {
      const T *rows = static_cast<const T*>(sorted.address()), *x = static_cast<const T*>(values.address());
      int64_t* out = detail::output<int64_t>(call);
      const bool right = right_;
      if (sorted.elements() > count) {
        parallel_for(count, detail::grain / 8, [=](int64_t begin, int64_t end) {
          detail::each_block(begin, end, in_row, [=](int64_t r, int64_t first, int64_t last) {
            const T* row = rows + r * n;
            find(n, x + r * in_row, first, last, right, out + r * in_row,
                 [=](int64_t k) { return order_key(row[k]); });
          });
        });
        return;
      }
      std::vector<OrderKey<T>> keys(static_cast<size_t>(sorted.elements()));
      std::transform(rows, rows + keys.size(), keys.begin(), [](T element) { return order_key(element); });
      parallel_for(count, detail::grain / 8, [=, from = keys.data()](int64_t begin, int64_t end) {
        detail::each_block(begin, end, in_row, [=](int64_t r, int64_t first, int64_t last) {
          const OrderKey<T>* row = from + r * n;
          find(n, x + r * in_row, first, last, right, out + r * in_row, [=](int64_t k) { return row[k]; });
        });
      });
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }

 private:
  /// For the values `first` to `last`, how many of n keys are before them. Several searches take turns, so
  /// that their reads overlap, and halve their ranges without branches.
  template <class T, class KeyAt>
  static void find(int64_t n, const T* values, int64_t first, int64_t last, bool right, int64_t* out,
                   KeyAt key_at) {
    constexpr int64_t together = 16;
    for (int64_t begin = first; begin < last; begin += together) {
      const int64_t count = std::min(together, last - begin);
      OrderKey<T> keys[together] = {};
      int64_t at[together] = {};
      for (int64_t i = 0; i < count; ++i) keys[i] = order_key(values[begin + i]);
      for (int64_t rest = n, half; rest > 0; rest -= half) {
        half = (rest + 1) / 2;
        for (int64_t i = 0; i < count; ++i) {
          const OrderKey<T> key = key_at(at[i] + half - 1);
          const bool is_before = right ? key <= keys[i] : key < keys[i];
          at[i] += is_before ? half : 0;
        }
      }
      std::copy(at, at + count, out + begin);
    }
  }

  bool right_;
};

}  // namespace

Variable searchsorted(const Operand& sorted, const Operand& values, bool right) {
  const Variable& rows = sorted.defined("searchsorted");
  return apply(std::make_shared<SearchSorted>(right), {&rows, &values.like(rows)}, sorted.where());
}

void add_search_op(OpRegistry& ops) {
  ops.add("searchsorted", 2,
          [](AttributeReader& a) { return std::make_shared<SearchSorted>(a.flag("right")); });
}

}  // namespace espalier
