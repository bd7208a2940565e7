#include "espalier/ops/convolution/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "espalier/core/cpu/widen.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/convolution/columns.h"
#include "espalier/ops/convolution/convolution_primitive.h"
#include "espalier/ops/convolution/device_workspace.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

Variable transposed_like(const Variable& g, const Variable& kernels, const Variable& like,
                         const ConvolutionForm& form);
Variable correlation(const Variable& x, const Variable& g, const Variable& like, const ConvolutionForm& form);

/// The operands of a call, as a convolution sees them.
struct ConvolutionOperands {
  Tensor x, kernels, y;
};

void run_by_columns(const ConvolutionSizes& sizes, ConvolutionResult result, ConvolutionOperands& all,
                    const Tensor& columns) {
  switch (result) {
    case ConvolutionResult::y: return convolve_by_columns(sizes, all.x, all.kernels, all.y, columns);
    case ConvolutionResult::x: return convolve_back_by_columns(sizes, all.y, all.kernels, all.x, columns);
    case ConvolutionResult::kernels: return correlate_by_columns(sizes, all.x, all.y, all.kernels, columns);
  }
}

/// A tensor with the channels last, seen as [batch, channels, …].
Tensor seen_with_channels_second(const ConvolutionForm& form, const Tensor& t) {
  Layout layout;
  layout.shape = Shape(form.channels_second(t.shape().dims()));
  layout.strides = form.channels_second(t.strides());
  layout.offset = t.layout().offset;
  return Tensor(t.storage(), std::move(layout), t.dtype());
}

/// By products, of copies with the channels second.
void run_by_columns(const ConvolutionForm& form, const ConvolutionSizes& sizes, ConvolutionResult result,
                    ConvolutionOperands& all, const Tensor& columns) {
  if (!form.channels_last) return run_by_columns(sizes, result, all, columns);
  Tensor x = seen_with_channels_second(form, all.x), y = seen_with_channels_second(form, all.y);
  ConvolutionOperands copies{x.contiguous_copy(), all.kernels, y.contiguous_copy()};
  run_by_columns(sizes, result, copies, columns);
  if (result == ConvolutionResult::x) copy_elements(copies.x, x);
  if (result == ConvolutionResult::y) copy_elements(copies.y, y);
}

/// By a method for float32, or by products.
void compute(const ConvolutionForm& form, ConvolutionResult result, ConvolutionOperands& all) {
  const ConvolutionSizes sizes = form.checked_sizes(all.x.shape(), all.kernels.shape(), all.y.shape());
  if (all.x.dtype() == DType::float32) {
    std::optional<ConvolutionPrimitive> primitive;
    try {
      primitive.emplace(
          sizes, result,
          convolution_strides(form, all.x.dtype(), all.x.layout(), all.kernels.layout(), all.y.layout()),
          Workspace());
    } catch (const UnsupportedError&) {  // then by products
    }
    if (primitive) return primitive->run(all.x.address(), all.kernels.address(), all.y.address());
  }
  run_by_columns(form, sizes, result, all, Tensor(columns_shape(sizes), all.x.dtype()));
}

/// What the three ops share. Each has two operands, and may have the tensor whose shape the result has.
class ConvolutionOp : public Op {
 public:
  ConvolutionOp(ConvolutionForm form, ConvolutionResult result, InputSet reads)
      : Op({.linearity = Linearity::each,
            .precision = OpPrecision::product,
            .takes_halves = true,
            .takes_any_values = true,
            .reads = reads,
            .gradient_reads = InputSet::first(2),
            .sums_over_rows = result == ConvolutionResult::kernels,
            .prefers_channels_last = !form.channels_last}),
        form_(std::move(form)),
        result_(result) {}
  Attributes attributes() const override { return form_.attributes(); }
  /// The axes of a batch stay as they are.
  bool mixes(size_t, size_t axis, const InputSpecs&) const override { return axis != 0; }
  /// Kernels stay as they are.
  ChannelsLastOp with_channels_last(const InputSpecs&, const Spec&) const override {
    if (form_.channels_last) return {};
    const bool to_kernels = result_ == ConvolutionResult::kernels;
    return {.op = with_attribute(*this, "channels_last", true),
            .moved = InputSet::all_but(to_kernels ? 2 : 1),
            .moves_output = !to_kernels};
  }
  NodeFlops cost(const NodeWork& work) const override {
    return {.product = sizes_of(work.inputs, work.outputs[0]).flops(), .product_type = work.inputs[0]->dtype};
  }

  void run_cpu(const KernelCall& call) const override {
    if (is_half(call.outputs[0]->dtype())) return run_widened(*this, call);
    ConvolutionOperands all = operands(call);
    if (all.x.elements() == 0 || all.y.elements() == 0 || all.kernels.elements() == 0)
      return zero_elements(*call.outputs[0]);
    compute(form_, result_, all);
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    const auto [x, kernels, y] = seats(call);
    for (const Tensor* each : {x, kernels, y})
      if (each->elements() == 0) return nullptr;
    if (y->dtype() == DType::float64) return bind_by_columns(call, context);
    if (!has_convolution_primitive(y->dtype())) return nullptr;
    for (const Tensor* each : {x, kernels, y})
      if (!is_dense(each->layout())) return nullptr;
    try {
      auto primitive = std::make_shared<ConvolutionPrimitive>(
          form_.checked_sizes(x->shape(), kernels->shape(), y->shape()), result_,
          convolution_strides(form_, y->dtype(), x->layout(), kernels->layout(), y->layout()),
          Workspace::of(context));
      return bound([primitive, x = x, kernels = kernels, y = y](RandomStream) {
        primitive->run(x->address(), kernels->address(), y->address());
      });
    } catch (const UnsupportedError&) {  // then by products; 16 bits are widened
      return y->dtype() == DType::float32 ? bind_by_columns(call, context) : nullptr;
    }
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    const ConvolutionSizes sizes = sizes_of(call.inputs, call.outputs[0]);
    if (sizes.flops() == 0) return 0;
    if (call.device != DeviceType::cpu) {
      const DType dtype = call.outputs[0].dtype;
      return device_workspace_bytes(sizes, dtype) +
             (form_.channels_last ? kernels_workspace_bytes(sizes, dtype) : 0);
    }
    const DType dtype = call.outputs[0].dtype;
    const int64_t by_columns = is_half(dtype) ? 0 : Workspace::bytes_for({dtype, columns_shape(sizes)});
    if (dtype == DType::float64) return by_columns;
    if (!has_convolution_primitive(dtype)) return 0;  // 16 bits are widened
    const Layout out(call.outputs[0].shape);
    if (!is_dense(*call.layouts[0]) || !is_dense(*call.layouts[1])) return 0;
    const auto [x, kernels, y] = seats(call.layouts[0], call.layouts[1], &out);
    return ConvolutionPrimitive::workspace_bytes(sizes, result_,
                                                 convolution_strides(form_, dtype, *x, *kernels, *y))
        .value_or(by_columns);
  }

 protected:
  const ConvolutionForm& form() const { return form_; }
  /// Checks that operands are of one real type.
  void check_operands(const InputSpecs& in) const {
    check_same_dtype(*in[0], *in[1], name());
    check_dtype<Reals>(*in[0], name());
  }
  /// Throws ShapeError unless a convolution of such an x has such a y.
  void check_windows(const Shape& x, const Shape& kernels, const Shape& y) const {
    if (!(form_.output(x, kernels, name()) == y))
      throw ShapeError(fmt::format("{}: {} in place of the convolution of {} with kernels {}", name(),
                                   y.str(), x.str(), kernels.str()));
  }

 private:
  std::unique_ptr<BoundKernel> bind_by_columns(const KernelCall& call, const BindContext& context) const {
    const auto [x, kernels, y] = seats(call);
    const ConvolutionSizes sizes = form_.checked_sizes(x->shape(), kernels->shape(), y->shape());
    const Tensor columns = Workspace::of(context).take(columns_shape(sizes), y->dtype(), cpu());
    return bound(
        [form = form_, result = result_, x = x, kernels = kernels, y = y, sizes, columns](RandomStream) {
          ConvolutionOperands all{x->contiguous_copy(), kernels->contiguous_copy(), y->contiguous_copy()};
          run_by_columns(form, sizes, result, all, columns);
        });
  }
  ConvolutionSizes sizes_of(const InputSpecs& in, const Spec& out) const {
    switch (result_) {
      case ConvolutionResult::y: return form_.sizes(in[0]->shape, in[1]->shape, out.shape);
      case ConvolutionResult::x: return form_.sizes(out.shape, in[1]->shape, in[0]->shape);
      case ConvolutionResult::kernels: break;
    }
    return form_.sizes(in[0]->shape, out.shape, in[1]->shape);
  }
  /// What methods can read where it is: no element is repeated, and axes are not turned.
  static bool is_dense(const Layout& layout) {
    return std::ranges::all_of(layout.strides, [](int64_t stride) { return stride > 0; });
  }
  template <class T>
  struct Seats {
    T x, kernels, y;
  };
  /// Of both inputs and the output.
  template <class T>
  Seats<T> seats(T a, T b, T out) const {
    switch (result_) {
      case ConvolutionResult::y: return {a, b, out};
      case ConvolutionResult::x: return {out, b, a};
      case ConvolutionResult::kernels: break;
    }
    return {a, out, b};
  }
  Seats<const Tensor*> seats(const KernelCall& call) const {
    return seats(call.inputs[0], call.inputs[1], static_cast<const Tensor*>(call.outputs[0]));
  }
  ConvolutionOperands operands(const KernelCall& call) const {
    const auto [x, kernels, y] = seats(call);
    return {x->contiguous_copy(), kernels->contiguous_copy(), y->contiguous_copy()};
  }

  ConvolutionForm form_;
  ConvolutionResult result_;
};

/// (x, kernels) -> y
struct Convolution : ConvolutionOp {
  explicit Convolution(ConvolutionForm form)
      : ConvolutionOp(std::move(form), ConvolutionResult::y, InputSet::all()) {}
  std::string_view name() const override { return "conv"; }
  Specs infer(const InputSpecs& in) const override {
    check_operands(in);
    return {{in[0]->dtype, form().output(in[0]->shape, in[1]->shape, name())}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), x = rule.input(0), kernels = rule.input(1);
    Gradients result(2);
    if (rule.wants(0)) result[0] = transposed_like(g, kernels, x, form());
    if (rule.wants(1)) result[1] = correlation(x, g, kernels, form());
    return result;
  }
};

/// (y, kernels) -> x, or (y, kernels, like) in the shape of `like`
class ConvolutionTranspose : public ConvolutionOp {
 public:
  ConvolutionTranspose(ConvolutionForm form, Dims more)
      : ConvolutionOp(std::move(form), ConvolutionResult::x, InputSet::first(2)), more_(std::move(more)) {}
  std::string_view name() const override { return "conv_transpose"; }
  Attributes attributes() const override {
    Attributes all = form().attributes();
    all.emplace_back("more", std::vector<int64_t>(more_.begin(), more_.end()));
    return all;
  }
  Specs infer(const InputSpecs& in) const override {
    check_operands(in);
    if (in.size() > 2) {
      check_windows(in[2]->shape, in[1]->shape, in[0]->shape);
      return {{in[0]->dtype, in[2]->shape}};
    }
    const Shape y = Shape(form().channels_second(in[0]->shape.dims())), &kernels = in[1]->shape;
    const size_t axes = form().axes();
    if (y.rank() != axes + 2 || kernels.rank() != axes + 2)
      throw ShapeError(fmt::format(
          "{}: takes [batch, channels] and {} more axes, and kernels [channels, channels] with as "
          "many, not {} and {}",
          name(), axes, y.str(), kernels.str()));
    if (y.dims()[1] != kernels.dims()[0])
      throw ShapeError(fmt::format("{}: {} has {} channels, and the kernels {} are for {}", name(), y.str(),
                                   size_text(y.dims()[1]), kernels.str(), size_text(kernels.dims()[0])));
    Shape x{y.dims()[0], kernels.dims()[1] * form().groups};
    for (size_t i = 0; i < axes; ++i) {
      const int64_t places = y.dims()[i + 2], kernel = kernels.dims()[i + 2];
      const int64_t size = places < 1 ? 0 : form().size_for(i, places, kernel) + more_[i];
      if (size < 1 || form().count(i, size, kernel) != places)
        throw ShapeError(
            fmt::format("{}: axis {} of {} would become {} long by kernels of {}, stride {}, dilation {}, "
                        "padding {} and {}",
                        name(), i + 2, y.str(), size_text(size), kernel, form().stride[i], form().dilation[i],
                        form().before[i], form().after[i]));
      x.dims().push_back(size);
    }
    x = form().in_own_order(x);
    (void)form().output(x, kernels, name());  // throws if they do not fit
    return {{in[0]->dtype, std::move(x)}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), y = rule.input(0), kernels = rule.input(1);
    Gradients result(rule.inputs());
    if (rule.wants(0)) result[0] = convolution(g, kernels, form(), rule.where());
    if (rule.wants(1)) result[1] = correlation(g, y, kernels, form());
    return result;
  }

 private:
  Dims more_;
};

/// (x, y, like) -> kernels, in the shape of `like`
struct ConvolutionKernels : ConvolutionOp {
  explicit ConvolutionKernels(ConvolutionForm form)
      : ConvolutionOp(std::move(form), ConvolutionResult::kernels, InputSet::first(2)) {}
  std::string_view name() const override { return "conv_kernels"; }
  Specs infer(const InputSpecs& in) const override {
    check_operands(in);
    check_windows(in[0]->shape, in[2]->shape, in[1]->shape);
    return {{in[0]->dtype, in[2]->shape}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), x = rule.input(0), y = rule.input(1);
    Gradients result(3);
    if (rule.wants(0)) result[0] = transposed_like(y, g, x, form());
    if (rule.wants(1)) result[1] = convolution(x, g, form(), rule.where());
    return result;
  }
};

Variable transposed_like(const Variable& g, const Variable& kernels, const Variable& like,
                         const ConvolutionForm& form) {
  return apply(std::make_shared<ConvolutionTranspose>(form, Dims(form.axes(), 0)), {&g, &kernels, &like},
               std::source_location::current());
}
Variable correlation(const Variable& x, const Variable& g, const Variable& like,
                     const ConvolutionForm& form) {
  return apply(std::make_shared<ConvolutionKernels>(form), {&x, &g, &like}, std::source_location::current());
}

}  // namespace

Variable convolution(const Variable& x, const Variable& kernels, const ConvolutionForm& form,
                     const std::source_location& where) {
  return apply(std::make_shared<Convolution>(form), {&x, &kernels}, where);
}
Variable convolution_transpose(const Variable& g, const Variable& kernels, const ConvolutionForm& form,
                               const Dims& more, const std::source_location& where) {
  return apply(std::make_shared<ConvolutionTranspose>(form, more), {&g, &kernels}, where);
}

void add_convolution_ops(OpRegistry& ops) {
  ops.add("conv", 2,
          [](AttributeReader& a) { return std::make_shared<Convolution>(ConvolutionForm::read(a)); });
  ops.add("conv_transpose", {2, 3}, [](AttributeReader& a) {
    ConvolutionForm form = ConvolutionForm::read(a);
    const Dims more = a.integers("more");
    if (more.size() != form.axes()) a.refuse("more");
    for (const int64_t number : more)
      if (number < 0) a.refuse("more");
    return std::make_shared<ConvolutionTranspose>(std::move(form), more);
  });
  ops.add("conv_kernels", 3,
          [](AttributeReader& a) { return std::make_shared<ConvolutionKernels>(ConvolutionForm::read(a)); });
}

}  // namespace espalier
