// Products along axes.
#include <algorithm>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/indexing/chosen.h"
#include "espalier/ops/last_axis.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/linear_scan.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// The product of a row of at least 32 elements, in 32 lanes.
template <class T>
[[gnu::always_inline]] inline T product_in_lanes(const T* row, int64_t n) {
  T products[detail::lanes];
  for (int64_t k = 0; k < detail::lanes; ++k) products[k] = row[k];
  int64_t i = detail::lanes;
  for (; i + detail::lanes <= n; i += detail::lanes)
    for (int64_t k = 0; k < detail::lanes; ++k) products[k] = scalar::Multiply()(products[k], row[i + k]);
  for (int64_t k = 0; i + k < n; ++k) products[k] = scalar::Multiply()(products[k], row[i + k]);
  detail::fold_halves<scalar::Multiply, detail::lanes / 2, 1>(products);
  return products[0];
}

/// The products of rows of n elements, one behind the other.
template <class T>
void products_of_rows(const T* in, int64_t rows, int64_t n, T* out) {
  if (n < detail::lanes) {
    for (int64_t r = 0; r < rows; ++r) {
      T product(1);
      for (int64_t i = 0; i < n; ++i) product = scalar::Multiply()(product, in[r * n + i]);
      out[r] = product;
    }
    return;
  }
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; ++r) out[r] = product_in_lanes(in + r * n, n);
  });
}

/// Along one axis, which stays with size 1.
class Prod : public Op {
 public:
  explicit Prod(int64_t axis)
      : Op({.kind = OpKind::reduction, .gradient_reads = InputSet::only(0)}), axis_(axis) {}
  std::string_view name() const override { return "prod"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_has_axis(*in[0], name());
    Shape shape = in[0]->shape;
    shape.dims()[resolve_axis(axis_, shape.rank(), name())] = 1;
    return {{in[0]->dtype, shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const AxisBlocks b(x.shape(), resolve_axis(axis_, x.rank(), name()));
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) run(static_cast<const T*>(x.address()), detail::output<T>(call), b);
    });
  }
  /// g times the product of the elements before, times that of those behind.
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input();
    const auto axis = static_cast<int64_t>(resolve_axis(axis_, x.rank(), name()));
    const Variable last = exchange_last_axis(x, axis);
    const Variable others =
        shift_by_one(cumprod(last), false, 1) * shift_by_one(cumprod_backwards(last, -1), true, 1);
    return {rule.output_gradient() * exchange_last_axis(others, axis)};
  }

 private:
  template <class T>
  static void run(const T* in, T* out, const AxisBlocks& b) {
    const int64_t n = b.size, inner = b.inner;
    if (inner == 1) {
      if (b.outer == 1) return one_row(in, out, n);
      parallel_for(
          b.outer, std::max<int64_t>(1, detail::grain / std::max<int64_t>(n, 1)),
          [=](int64_t begin, int64_t end) { products_of_rows(in + begin * n, end - begin, n, out + begin); });
      return;
    }
    constexpr int64_t part = 1024;  // columns of one product
    const int64_t parts = (inner + part - 1) / part;
    const int64_t grain =
        std::max<int64_t>(1, detail::grain / std::max<int64_t>(n * std::min(inner, part), 1));
    parallel_for(b.outer * parts, grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / parts, left = (i - o * parts) * part, width = std::min(part, inner - left);
        T* to = out + o * inner + left;
        std::fill_n(to, width, T(1));
        for (int64_t k = 0; k < n; ++k)
          detail::binary_row<scalar::Multiply, T, T>(width, to, to, 1, in + (o * n + k) * inner + left, 1);
      }
    });
  }
  /// Parts of one size, whatever the number of threads is.
  template <class T>
  static void one_row(const T* in, T* out, int64_t n) {
    const int64_t parts = (n + detail::grain - 1) / detail::grain;
    std::vector<T> products(static_cast<size_t>(parts));
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        products_of_rows(in + p * detail::grain, 1, std::min(detail::grain, n - p * detail::grain),
                         products.data() + p);
    });
    products_of_rows(products.data(), 1, parts, out);
  }

  int64_t axis_;
};

/// The axes, counted from the front; all if none is given.
Dims resolved_axes(const Variable& x, const Axes& axes, std::string_view op,
                   const std::source_location& where) {
  const auto gone = located(where, [&] { return axes.mask(x.rank(), op); });
  Dims result;
  for (size_t i = 0; i < x.rank(); ++i)
    if (gone[i]) result.push_back(static_cast<int64_t>(i));
  return result;
}

}  // namespace

Variable prod(const Operand& x, const Axes& axes, bool keep_dims) {
  const Variable& v = x.defined("prod");
  const CallScope scope(x.where());
  const Dims gone = resolved_axes(v, axes, "prod", x.where());
  const auto along = [&](const Variable& of, int64_t axis) {
    return apply(std::make_shared<Prod>(axis), {&of}, x.where());
  };
  if (gone.size() == v.rank() && v.rank() != 1) {  // all elements, as one row
    const Variable product = along(reshape(v, {-1}), 0);
    return reshape(product, keep_dims ? Shape(Dims(v.rank(), 1)) : Shape());
  }
  Variable product = v;
  for (size_t i = gone.size(); i-- > 0;) product = along(product, gone[i]);
  return keep_dims || gone.empty() ? product : squeeze(product, Axes(gone));
}

void add_product_ops(OpRegistry& ops) {
  ops.add("prod", 1, [](AttributeReader& a) { return std::make_shared<Prod>(a.integer("axis")); });
}

}  // namespace espalier
