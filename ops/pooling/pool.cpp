// Sums of windows, their transpose, and the sizes of windows.
#include "espalier/ops/pooling/pool.h"

#include <algorithm>
#include <cmath>

#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/pooling/pool_loops.h"
#include "espalier/ops/pooling/pool_op.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

Variable spread_windows(const Variable& g, const Variable& like, const PoolForm& form);

struct PoolSum : PoolOp {
  explicit PoolSum(PoolForm form)
      : PoolOp(std::move(form), {.linearity = Linearity::together, .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "pool_sum"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return {{in[0]->dtype, form().output(in[0]->shape, name())}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    if (call.outputs[0]->elements() == 0) return;
    const PoolAxes axes = form().windows(x.shape(), name());
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = static_cast<T*>(call.outputs[0]->address());
        const int64_t width = width_of(x.shape()), planes = pooled_planes(x.shape(), form());
        each_plane(axes, planes, width, [&](int64_t first, int64_t first_window) {
          const T* in = from + first;
          T* out = to + first_window;
          each_window(axes, [&](int64_t window, const PoolRange& a, const PoolRange& b, const PoolRange& c) {
            if (form().channels_last) {
              T* sums = out + window * width;
              std::fill_n(sums, width, T(0));
              each_element(axes, a, b, c, [&](int64_t at) { add_channels(width, in + at * width, sums); });
              return;
            }
            T sum(0);
            each_element(axes, a, b, c, [&](int64_t at) { sum += in[at]; });
            out[window] = sum;
          });
        });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {spread_windows(rule.output_gradient(), rule.input(0), form())};
  }
};

/// The transpose of PoolSum, in the shape of its second input: each element is the sum of the windows that
/// it is in.
struct PoolSpread : PoolOp {
  explicit PoolSpread(PoolForm form)
      : PoolOp(
            std::move(form),
            {.linearity = Linearity::first, .reads = InputSet::only(0), .gradient_reads = InputSet::none()}) {
  }
  std::string_view name() const override { return "pool_spread"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    if (const Shape pooled = form().output(in[1]->shape, name()); !(in[0]->shape == pooled))
      throw ShapeError(fmt::format("{}: {} in place of {}, the windows of {}", name(), in[0]->shape.str(),
                                   pooled.str(), in[1]->shape.str()));
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor g = call.inputs[0]->contiguous_copy();
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    if (out.elements() == 0) return;
    const PoolAxes axes = form().windows(out.shape(), name());
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(g.address());
        T* to = static_cast<T*>(out.address());
        const int64_t width = width_of(out.shape()), planes = pooled_planes(out.shape(), form());
        each_plane(axes, planes, width, [&](int64_t first, int64_t first_window) {
          const T* windows = from + first_window;
          T* elements = to + first;
          each_window(axes, [&](int64_t window, const PoolRange& a, const PoolRange& b, const PoolRange& c) {
            each_element(axes, a, b, c, [&](int64_t at) {
              if (form().channels_last)
                add_channels(width, windows + window * width, elements + at * width);
              else
                elements[at] += windows[window];
            });
          });
        });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {pool_sum(rule.output_gradient(), form(), rule.where()), Variable()};
  }
};

/// From the shape of its input alone.
class PoolCount : public PoolOp {
 public:
  PoolCount(PoolForm form, bool with_padding)
      : PoolOp(std::move(form), {.takes_any_values = true,
                                 .reads = InputSet::none(),
                                 .gradient_reads = InputSet::none(),
                                 .passes_no_gradient = true}),
        with_padding_(with_padding) {}
  std::string_view name() const override { return "pool_count"; }
  Attributes attributes() const override {
    Attributes all = PoolOp::attributes();
    all.emplace_back("with_padding", with_padding_);
    return all;
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    Shape out = form().output(in[0]->shape, name());
    const size_t first = form().first_axis(out);
    for (size_t i = 0; i < out.rank(); ++i)
      if (i < first || i >= first + form().axes()) out.dims()[i] = 1;
    return {{in[0]->dtype, std::move(out)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const PoolAxes axes = form().windows(call.inputs[0]->shape(), name());
    Tensor& out = *call.outputs[0];
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        T* to = static_cast<T*>(out.address());
        int64_t window = 0;
        for (int64_t i = 0; i < axes.at[0].count; ++i)
          for (int64_t j = 0; j < axes.at[1].count; ++j)
            for (int64_t k = 0; k < axes.at[2].count; ++k)
              to[window++] = static_cast<T>(counted(axes.at[0], i, 2) * counted(axes.at[1], j, 1) *
                                            counted(axes.at[2], k, 0));
      }
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  /// `from_last`: the number of the axis, from the last one.
  int64_t counted(const PoolAxis& axis, int64_t window, size_t from_last) const {
    if (!with_padding_ || axis.kernel == 0 || from_last >= form().axes()) return range_of(axis, window).count;
    // What `ceil` lets reach beyond the padding does not count.
    const int64_t end = axis.size + form().after[form().axes() - 1 - from_last];
    const int64_t begin = axis.begin(window);
    return std::clamp<int64_t>((end - begin - 1) / axis.dilation + 1, 0, axis.kernel);
  }

  bool with_padding_;
};

Variable spread_windows(const Variable& g, const Variable& like, const PoolForm& form) {
  return apply(std::make_shared<PoolSpread>(form), {&g, &like}, std::source_location::current());
}

}  // namespace

Variable pool_sum(const Variable& x, const PoolForm& form, const std::source_location& where) {
  return apply(std::make_shared<PoolSum>(form), {&x}, where);
}
Variable pool_count(const Variable& like, const PoolForm& form, bool with_padding,
                    const std::source_location& where) {
  return apply(std::make_shared<PoolCount>(form, with_padding), {&like}, where);
}

void add_pool_ops(OpRegistry& ops) {
  ops.add("pool_sum", 1, [](AttributeReader& a) { return std::make_shared<PoolSum>(PoolForm::read(a)); });
  ops.add("pool_spread", 2,
          [](AttributeReader& a) { return std::make_shared<PoolSpread>(PoolForm::read(a)); });
  ops.add("pool_count", 1, [](AttributeReader& a) {
    PoolForm form = PoolForm::read(a);
    return std::make_shared<PoolCount>(std::move(form), a.flag("with_padding"));
  });
}

}  // namespace espalier
