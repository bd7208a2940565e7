// Counts of elements that are zero or are not.
#include "espalier/ops/reductions/count_elements.h"

#include <algorithm>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

class CountElements : public Op {
 public:
  CountElements(Dims axes, bool keep_dims, bool zeros)
      : Op({.kind = OpKind::reduction,
            .takes_halves = true,
            .takes_any_values = true,
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        axes_(std::move(axes)),
        keep_dims_(keep_dims),
        zeros_(zeros) {}
  std::string_view name() const override { return "count_nonzero"; }
  Attributes attributes() const override {
    return {{"axes", std::vector<int64_t>(axes_.begin(), axes_.end())},
            {"keep_dims", keep_dims_},
            {"zeros", zeros_}};
  }
  Specs infer(const InputSpecs& in) const override {
    const auto gone = Axes(axes_).mask(in[0]->shape.rank(), name());
    Dims dims;
    for (size_t i = 0; i < in[0]->shape.rank(); ++i)
      if (!gone[i] || keep_dims_) dims.push_back(gone[i] ? 1 : in[0]->shape.dims()[i]);
    return {{DType::int64, Shape(std::move(dims))}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    Tensor& out = *call.outputs[0];
    int64_t* counts = static_cast<int64_t*>(out.address());
    std::fill_n(counts, out.elements(), int64_t{0});
    const auto gone = Axes(axes_).mask(x.rank(), name());
    Shape kept = x.shape();
    for (size_t i = 0; i < x.rank(); ++i)
      if (gone[i]) kept.dims()[i] = 1;
    const Layout seen = broadcast_layout(Layout(kept), x.shape());
    if (is_half(x.dtype())) {  // a sign does not make a zero another number
      count(static_cast<const uint16_t*>(x.address()), x, seen, counts, 0x7fff);
    } else if (is_small_integer(x.dtype())) {
      visit_size(x.dtype(), [&]<class T>(TypeTag<T>) {
        count(static_cast<const T*>(x.address()), x, seen, counts, 0xffff);
      });
    } else {
      visit(x.dtype(),
            [&]<class T>(TypeTag<T>) { count(static_cast<const T*>(x.address()), x, seen, counts, 0); });
    }
  }

 private:
  template <class T>
  void count(const T* data, const Tensor& x, const Layout& seen, int64_t* counts, int mask) const {
    const bool zeros = zeros_;
    const int64_t n = x.elements();
    if (x.contiguous() && keeps_none(seen) && n > 2 * detail::grain) {
      const int64_t parts = (n + detail::grain - 1) / detail::grain;
      std::vector<int64_t> of_parts(static_cast<size_t>(parts));
      parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          of_parts[static_cast<size_t>(p)] = in_row(
              data + p * detail::grain, std::min(detail::grain, n - p * detail::grain), 1, zeros, mask);
      });
      for (const int64_t part : of_parts) *counts += part;
      return;
    }
    detail::split_kept_axis(x, seen, [&](const Tensor& part, const Layout& to) {
      const T* from = static_cast<const T*>(part.address());
      StridedLoop<2>(part.shape(), {&to.strides, &part.strides()})
          .run([&](int64_t length, const auto& at, const auto& by) {
            const T* row = from + at[1];
            int64_t* sum = counts + to.offset + at[0];
            if (by[0] == 0)
              *sum += in_row(row, length, by[1], zeros, mask);
            else
              for (int64_t i = 0; i < length; ++i)
                sum[i * by[0]] += is_nonzero(row[i * by[1]], mask) != zeros;
          });
    });
  }
  static bool keeps_none(const Layout& seen) {
    return std::all_of(seen.strides.begin(), seen.strides.end(), [](int64_t step) { return step == 0; });
  }
  template <class T>
  [[gnu::always_inline]] static inline bool is_nonzero(T x, int mask) {
    if constexpr (std::is_same_v<T, uint16_t>) return (x & mask) != 0;
    return x != T(0);
  }
  template <class T>
  static int64_t in_row(const T* row, int64_t n, int64_t step, bool zeros, int mask) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += 4096) {
      const int64_t size = std::min<int64_t>(4096, n - begin);
      const T* from = row + begin * step;
      int32_t part = 0;
      int32_t* result = &part;
      if (step == 1)
        vectorized([=]() __attribute__((always_inline)) {
          int32_t found = 0;
          for (int64_t i = 0; i < size; ++i) found += is_nonzero(from[i], mask);
          *result = found;
        });
      else
        for (int64_t i = 0; i < size; ++i) part += is_nonzero(from[i * step], mask);
      count += zeros ? size - part : part;
    }
    return count;
  }

  Dims axes_;
  bool keep_dims_, zeros_;
};

}  // namespace

Variable count_elements(const Operand& x, const Axes& axes, bool keep_dims, bool zeros) {
  return apply(std::make_shared<CountElements>(axes.list(), keep_dims, zeros), {&x.variable()}, x.where());
}

void add_count_op(OpRegistry& ops) {
  ops.add("count_nonzero", 1, [](AttributeReader& a) {
    const Dims axes = a.integers("axes");
    const bool keep_dims = a.flag("keep_dims");
    return std::make_shared<CountElements>(axes, keep_dims, a.flag("zeros"));
  });
}

}  // namespace espalier
