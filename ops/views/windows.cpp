// Windows that slide over an axis, as a view, and their transpose, which adds windows up.
#include "espalier/ops/functions/windows.h"

#include <limits>
#include <memory>

#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/view_op.h"
#include "espalier/ops/views/windows.h"

namespace espalier {

namespace {

/// Windows over one axis.
struct Sliding {
  int64_t axis, size, step, dilation;

  /// From the first element of a window to the last; as long as 64 bits count, for a longer one.
  int64_t span() const {
    int64_t between = 0, all = 0;
    const bool fits = !__builtin_mul_overflow(dilation, size - 1, &between) &&
                      !__builtin_add_overflow(between, int64_t{1}, &all);
    return fits ? all : std::numeric_limits<int64_t>::max();
  }
  int64_t count(int64_t length) const { return length < span() ? 0 : (length - span()) / step + 1; }
  Attributes attributes() const {
    return {{"axis", axis}, {"size", size}, {"step", step}, {"dilation", dilation}};
  }
};

struct SlidingView : ViewOp {
  explicit SlidingView(const Sliding& sliding) : sliding_(sliding) {}
  std::string_view name() const override { return "sliding_windows"; }
  Attributes attributes() const override { return sliding_.attributes(); }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    int64_t& length = shape.dims()[resolve_axis(sliding_.axis, shape.rank(), name())];
    const int64_t count = sliding_.count(length);
    if (count == 0)
      throw ShapeError(fmt::format("sliding_windows: axis {} of shape {} is shorter than a window of {}",
                                   sliding_.axis, in[0]->shape.str(), sliding_.span()));
    length = count;
    shape.dims().push_back(sliding_.size);
    check_countable(shape, name());
    return {{in[0]->dtype, std::move(shape)}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout = in;
    const size_t axis = resolve_axis(sliding_.axis, in.shape.rank(), name());
    layout.shape = out.shape;
    layout.strides[axis] = in.strides[axis] * sliding_.step;
    layout.strides.push_back(in.strides[axis] * sliding_.dilation);
    return layout;
  }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return std::nullopt; }
  Gradients gradient(const GradientRule& rule) const override {
    return {add_windows_like(rule.output_gradient(), rule.input(0), sliding_.axis, sliding_.step,
                             sliding_.dilation)};
  }

 private:
  Sliding sliding_;
};

/// Adds windows, the elements of which are on the last axis, to an axis of `length`, or of that of the second
/// input.
class AddWindows : public Op {
 public:
  AddWindows(int64_t axis, int64_t step, int64_t dilation, int64_t length)
      : Op({.linearity = Linearity::first, .reads = InputSet::only(0), .gradient_reads = InputSet::none()}),
        axis_(axis),
        step_(step),
        dilation_(dilation),
        length_(length) {}
  std::string_view name() const override { return "add_windows"; }
  Attributes attributes() const override {
    return {{"axis", axis_}, {"step", step_}, {"dilation", dilation_}, {"length", length_}};
  }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis == resolve_axis(axis_, in[0]->shape.rank() - 1, name());
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    Shape shape = in[0]->shape;
    if (shape.rank() < 2) throw ShapeError(fmt::format("add_windows: {} has no windows", shape.str()));
    const size_t axis = resolve_axis(axis_, shape.rank() - 1, name());
    const Sliding sliding{axis_, shape.dims().back(), step_, dilation_};
    const int64_t count = shape.dims()[axis], length = in.size() > 1 ? in[1]->shape[axis_] : length_;
    shape.dims().pop_back();
    shape.dims()[axis] = length;
    if (sliding.count(length) != count)
      throw ShapeError(
          fmt::format("add_windows: {} windows of {} elements, {} apart and beginning {} apart, do "
                      "not slide over {} elements",
                      count, sliding.size, dilation_, step_, size_text(length)));
    return {{in[0]->dtype, std::move(shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    Tensor& out = *call.outputs[0];
    const size_t axis = resolve_axis(axis_, out.rank(), name());
    zero_elements(out);
    if (x.elements() == 0) return;
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = static_cast<T*>(out.address());
        Shape one = x.shape();  // one element of each window
        one.dims().pop_back();
        Dims to_steps = out.strides(), from_steps(x.strides().begin(), x.strides().end() - 1);
        to_steps[axis] *= step_;
        const StridedLoop<2> loop(one, {&to_steps, &from_steps});
        for (int64_t k = 0; k < x.shape().dims().back(); ++k) {
          T* first_to = to + k * dilation_ * out.strides()[axis];
          const T* first = from + k * x.strides().back();
          parallel_for(loop.rows(), std::max<int64_t>(1, detail::grain / loop.row()),
                       [&](int64_t begin, int64_t end) {
                         loop.run_rows(begin, end,
                                       [&](int64_t n, std::array<int64_t, 2> at, std::array<int64_t, 2> by) {
                                         T* sum = first_to + at[0];
                                         const T* add = first + at[1];
                                         for (int64_t i = 0; i < n; ++i)
                                           sum[i * by[0]] = scalar::Add()(sum[i * by[0]], add[i * by[1]]);
                                       });
                       });
        }
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const int64_t size = rule.input(0).shape()[-1];  // of a kernel: no batch has another
    const auto axis = static_cast<int64_t>(resolve_axis(axis_, rule.output().rank(), name()));
    Gradients gradients(rule.inputs());
    gradients[0] = sliding_windows(rule.output_gradient(), axis, size, step_, dilation_);
    return gradients;
  }

 private:
  int64_t axis_, step_, dilation_, length_;
};

}  // namespace

Variable sliding_windows(const Operand& x, int64_t axis, int64_t size, int64_t step, int64_t dilation) {
  if (size < 1 || step < 1 || dilation < 1)
    located(x.where(), [&] {
      throw Error(fmt::format("sliding_windows: windows of {} elements, {} apart, that begin {} apart", size,
                              dilation, step));
    });
  return apply(std::make_shared<SlidingView>(Sliding{axis, size, step, dilation}), {&x.variable()},
               x.where());
}
Variable add_windows_like(const Variable& x, const Variable& like, int64_t axis, int64_t step,
                          int64_t dilation) {
  const auto a = static_cast<int64_t>(resolve_axis(axis, like.rank(), "add_windows"));
  return apply(std::make_shared<AddWindows>(a, step, dilation, 0), {&x, &like},
               std::source_location::current());
}
Variable add_windows(const Variable& x, int64_t length, int64_t axis, int64_t step, int64_t dilation) {
  return apply(std::make_shared<AddWindows>(axis, step, dilation, length), {&x},
               std::source_location::current());
}

void add_window_ops(OpRegistry& ops) {
  ops.add("sliding_windows", 1, [](AttributeReader& a) {
    return std::make_shared<SlidingView>(
        Sliding{a.integer("axis"), a.integer("size", 1), a.integer("step", 1), a.integer("dilation", 1)});
  });
  ops.add("add_windows", {1, 2}, [](AttributeReader& a) {
    const int64_t axis = a.integer("axis"), step = a.integer("step", 1), dilation = a.integer("dilation", 1);
    return std::make_shared<AddWindows>(axis, step, dilation, a.integer("length", 0));
  });
}

}  // namespace espalier
