#include <fmt/format.h>

#include <cmath>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/fractional_pooling.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/pooling/forms.h"
#include "espalier/ops/pooling/fractional_windows.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/ops/views/window_numbers.h"
#include "espalier/ops/widened.h"

namespace espalier {

FractionalAxes fractional_axes(const Shape& x, const Dims& kernel, const Dims& count, std::string_view op) {
  FractionalAxes all;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const size_t at = most_pooled_axes - kernel.size() + i;
    all.size[at] = x.dims()[i + 2];
    all.kernel[at] = kernel[i];
    all.count[at] = count[i];
    if (kernel[i] + count[i] - 1 > all.size[at])
      throw ShapeError(fmt::format("{}: {} windows of {} elements do not fit axis {} of {}", op, count[i],
                                   kernel[i], i + 2, x.str()));
  }
  return all;
}

namespace {

/// From x and samples [batch, channels, axes]: where in its plane the largest element of each window lies.
class FractionalArgmax : public Op {
 public:
  FractionalArgmax(Dims kernel, Dims count)
      : Op({.gradient_reads = InputSet::none(), .passes_no_gradient = true}),
        kernel_(std::move(kernel)),
        count_(std::move(count)) {}
  std::string_view name() const override { return "fractional_argmax"; }
  Attributes attributes() const override {
    return {{"kernel", std::vector<int64_t>(kernel_.begin(), kernel_.end())},
            {"count", std::vector<int64_t>(count_.begin(), count_.end())}};
  }
  bool mixes(size_t, size_t axis, const InputSpecs&) const override { return axis >= 2; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    check_same_dtype(*in[0], *in[1], name());
    const Shape &x = in[0]->shape, &samples = in[1]->shape;
    const auto axes = static_cast<int64_t>(kernel_.size());
    if (x.rank() != kernel_.size() + 2 || samples.rank() != 3 || samples[0] != x[0] || samples[1] != x[1] ||
        samples[2] != axes)
      throw ShapeError(fmt::format("{}: samples of shape {} for {}, not [{}, {}, {}]", name(), samples.str(),
                                   x.str(), size_text(x[0]), size_text(x[1]), axes));
    (void)fractional_axes(x, kernel_, count_, name());
    Shape out = x;
    for (size_t i = 0; i < count_.size(); ++i) out.dims()[i + 2] = count_[i];
    return {{DType::int64, std::move(out)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), samples = call.inputs[1]->contiguous_copy();
    const FractionalAxes axes = fractional_axes(x.shape(), kernel_, count_, name());
    auto* to = static_cast<int64_t*>(call.outputs[0]->address());
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        const T* given = static_cast<const T*>(samples.address());
        const auto drawn = static_cast<int64_t>(kernel_.size());
        const int64_t planes = x.shape()[0] * x.shape()[1];
        parallel_for(planes, 1, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) {
            T sample[most_pooled_axes] = {};
            for (int64_t i = 0; i < drawn; ++i)
              sample[static_cast<int64_t>(most_pooled_axes) - drawn + i] = given[p * drawn + i];
            one_plane(axes, sample, from + p * axes.elements(), to + p * axes.windows());
          }
        });
      }
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }

 private:
  template <class T>
  static void one_plane(const FractionalAxes& a, const T* sample, const T* from, int64_t* to) {
    const auto begin = [&](size_t axis, int64_t window) {
      return fractional_begin(sample[axis], window, a.count[axis], a.size[axis], a.kernel[axis]);
    };
    for (int64_t i = 0; i < a.count[0]; ++i)
      for (int64_t j = 0; j < a.count[1]; ++j)
        for (int64_t k = 0; k < a.count[2]; ++k) {
          const int64_t x = begin(0, i), y = begin(1, j), z = begin(2, k);
          int64_t best = (x * a.size[1] + y) * a.size[2] + z;
          for (int64_t u = x; u < x + a.kernel[0]; ++u)
            for (int64_t v = y; v < y + a.kernel[1]; ++v)
              for (int64_t w = z; w < z + a.kernel[2]; ++w) {
                const int64_t at = (u * a.size[1] + v) * a.size[2] + w;
                if (from[at] > from[best] || (from[at] != from[at] && from[best] == from[best])) best = at;
              }
          *to++ = best;
        }
  }

  Dims kernel_, count_;
};

/// The number of windows along each axis.
Dims windows_of(const Variable& x, const FractionalPoolOptions& o, std::string_view function) {
  const size_t axes = axes_to_pool(x, function);
  if (o.parts.has_value() == !o.ratio.empty())
    throw Error(fmt::format("{}: takes either `parts` or `ratio`", function));
  if (o.parts) return parts_of_axes(*o.parts, axes, function);
  check_window_count(o.ratio.size(), axes, "ratio", function);
  Dims count;
  for (size_t i = 0; i < axes; ++i) {
    const double ratio = o.ratio[o.ratio.size() == 1 ? 0 : i];
    if (!(ratio > 0 && ratio < 1))
      throw Error(fmt::format("{}: a ratio of {}; it is between 0 and 1", function, ratio));
    const auto n = static_cast<int64_t>(static_cast<double>(x.shape().dims()[i + 2]) * ratio);
    if (n < 1)
      throw ShapeError(fmt::format("{}: with a ratio of {}, axis {} of {} has no window", function, ratio,
                                   i + 2, x.shape().str()));
    count.push_back(n);
  }
  return count;
}

/// Uniform numbers [batch, channels, axes].
Variable drawn_samples(const Variable& x, size_t axes) {
  const Variable rows = flatten(x, 2);
  const Variable planes = squeeze(slice(rows, -1, 0, 1), -1);
  return rand_like(repeat_on_axis(planes, static_cast<int64_t>(axes), 2));
}

PooledWithIndices fractional(const Operand& x, const FractionalPoolOptions& options, const Variable& samples,
                             std::string_view function) {
  const CallScope scope(x.where(), function);
  return located(x.where(), [&]() -> PooledWithIndices {
    const Variable& given = x.defined(function);
    check_pooled_reals(given, function);
    const Dims count = windows_of(given, options, function);
    const Dims kernel = numbers_for_axes(options.kernel, count.size(), 1, "kernel", function);
    const Variable from = options.ratio.empty() ? given : with_fixed_sizes(given, 2);
    (void)fractional_axes(from.shape(), kernel, count, function);  // throws where windows do not fit
    const Shape& shape = from.shape();
    const auto axes = static_cast<int64_t>(count.size());
    if (samples.defined() && (samples.rank() != 3 || samples.shape()[0] != shape[0] ||
                              samples.shape()[1] != shape[1] || samples.shape()[2] != axes))
      throw ShapeError(fmt::format("{}: samples of shape {} for {}, not [batch, channels, {}]", function,
                                   samples.shape().str(), shape.str(), axes));
    if (samples.defined() && samples.dtype() != from.dtype())
      throw TypeError(fmt::format("{}: samples are {}, elements {}", function, name(samples.dtype()),
                                  name(from.dtype())));
    // Drawn in float32 at least, so that none is rounded to 1.
    const Variable wide = widened(from);
    const Variable at = samples.defined() ? widened(samples) : drawn_samples(wide, count.size());
    const Variable indices =
        apply(std::make_shared<FractionalArgmax>(kernel, count), {&wide, &at}, x.where());
    return {elements_at(from, indices), indices};
  });
}

}  // namespace

Variable fractional_max_pool(const Operand& x, const FractionalPoolOptions& options,
                             const Variable& samples) {
  return fractional(x, options, samples, "fractional_max_pool").values;
}
PooledWithIndices fractional_max_pool_with_indices(const Operand& x, const FractionalPoolOptions& options,
                                                   const Variable& samples) {
  return fractional(x, options, samples, "fractional_max_pool_with_indices");
}

void add_fractional_pool_op(OpRegistry& ops) {
  ops.add("fractional_argmax", 2, [](AttributeReader& a) {
    Dims kernel = a.integers("kernel"), count = a.integers("count");
    const auto positive = [](const Dims& list) {
      for (const int64_t number : list)
        if (number < 1 || number > most_of_a_window) return false;
      return !list.empty() && list.size() <= most_pooled_axes;
    };
    if (!positive(kernel)) a.refuse("kernel");
    if (!positive(count) || count.size() != kernel.size()) a.refuse("count");
    return std::make_shared<FractionalArgmax>(std::move(kernel), std::move(count));
  });
}

}  // namespace espalier
