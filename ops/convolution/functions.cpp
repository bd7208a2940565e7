// The functions of ops/functions/convolution.h: checked options, batches of one, and biases.
#include "espalier/ops/functions/convolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/convolution/convolution.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier {

namespace {

/// The axes behind batch and channels, by the kernels.
size_t convolved_axes(const Variable& x, const Variable& kernels, std::string_view function) {
  const size_t axes = kernels.rank() < 3 ? 0 : kernels.rank() - 2;
  if (axes == 0 || axes > most_convolution_axes || (x.rank() != axes + 2 && x.rank() != axes + 1))
    throw ShapeError(fmt::format(
        "{}: takes [batch, channels, sizes…] and kernels [channels, channels, sizes…] with one, two "
        "or three sizes, not {} and {}",
        function, x.shape().str(), kernels.shape().str()));
  return axes;
}

template <class Options>
ConvolutionForm checked_form(const Options& o, size_t axes, std::string_view function) {
  ConvolutionForm form;
  form.stride = numbers_for_axes(o.stride, axes, 1, "stride", function);
  form.dilation = numbers_for_axes(o.dilation, axes, 1, "dilation", function);
  check_window_number(o.groups, 1, "number of groups", function);
  form.groups = o.groups;
  return form;
}

ConvolutionForm form_of(const ConvolutionOptions& o, const Shape& kernels, std::string_view function) {
  const size_t axes = kernels.rank() - 2;
  ConvolutionForm form = checked_form(o, axes, function);
  if (!o.padding.keeps_sizes()) check_window_count(o.padding.size(), axes, "padding", function);
  for (size_t i = 0; i < axes; ++i) {
    Padding ends = o.padding[i];
    if (o.padding.keeps_sizes()) {
      if (o.stride[i] != 1)
        throw Error(fmt::format("{}: padding that keeps the sizes is for a stride of 1, not {}", function,
                                o.stride[i]));
      const int64_t lost = form.span(i, kernels.dims()[i + 2]) - 1;
      ends = {lost / 2, lost - lost / 2};
    }
    check_window_number(ends.before, 0, "padding", function);
    check_window_number(ends.after, 0, "padding", function);
    form.before.push_back(ends.before);
    form.after.push_back(ends.after);
  }
  return form;
}

Variable with_bias(const Variable& y, const Variable& bias, size_t axes, std::string_view function) {
  if (bias.rank() != 1 || bias.shape()[0] != y.shape()[1])
    throw ShapeError(fmt::format("{}: a bias of shape {} for {} channels", function, bias.shape().str(),
                                 size_text(y.shape()[1])));
  Shape along{-1};
  for (size_t i = 0; i < axes; ++i) along.dims().push_back(1);
  return y + reshape(bias, along);
}

/// Calls `f(x, axes)` with a batch, which the result has only if the operand had.
template <class F>
Variable over_batch(const Operand& x, const Variable& kernels, std::string_view function, F&& f) {
  const CallScope scope(x.where(), function);
  return located(x.where(), [&] {
    Variable v = x.defined(function);
    if (!kernels.defined()) throw Error(fmt::format("{}: the kernels are an empty Variable", function));
    const size_t axes = convolved_axes(v, kernels, function);
    const bool batched = v.rank() == axes + 2;
    if (!batched) v = unsqueeze(v, 0);
    const Variable y = f(v, axes);
    return batched ? y : squeeze(y, 0);
  });
}

Variable conv_with(const Operand& x, const Variable& kernels, const Variable* bias,
                   const ConvolutionOptions& options) {
  return over_batch(x, kernels, "conv", [&](const Variable& v, size_t axes) {
    const Variable y = convolution(v, kernels, form_of(options, kernels.shape(), "conv"), x.where());
    return bias ? with_bias(y, *bias, axes, "conv") : y;
  });
}

Variable conv_transpose_with(const Operand& x, const Variable& kernels, const Variable* bias,
                             const TransposedConvolutionOptions& o) {
  constexpr std::string_view function = "conv_transpose";
  return over_batch(x, kernels, function, [&](const Variable& v, size_t axes) {
    ConvolutionForm form = checked_form(o, axes, function);
    check_window_count(o.padding.size(), axes, "padding", function);
    check_window_count(o.output_padding.size(), axes, "output padding", function);
    Dims more;
    std::vector<Padding> zeros;
    bool has_zeros = false;
    for (size_t i = 0; i < axes; ++i) {
      check_window_number(o.padding[i], 0, "padding", function);
      check_window_number(o.output_padding[i], 0, "output padding", function);
      const int64_t longer = o.output_padding[i], cut = o.padding[i];
      if (longer >= o.stride[i] && longer >= o.dilation[i])
        throw Error(
            fmt::format("{}: an output padding of {} is not less than the stride {} or the dilation {}",
                        function, longer, o.stride[i], o.dilation[i]));
      // The transposed convolution has longer axes only within a stride. Above that, less is cut off at the
      // end, behind which no kernel reaches.
      const bool within_stride = longer < o.stride[i];
      form.before.push_back(cut);
      form.after.push_back(within_stride ? cut : std::max<int64_t>(cut - longer, 0));
      more.push_back(within_stride ? longer : 0);
      zeros.push_back({0, within_stride ? 0 : std::max<int64_t>(longer - cut, 0)});
      has_zeros |= zeros.back().after > 0;
    }
    Variable y = convolution_transpose(v, kernels, form, more, x.where());
    if (has_zeros) y = pad(y, zeros);
    return bias ? with_bias(y, *bias, axes, function) : y;
  });
}

}  // namespace

Variable conv(const Operand& x, const Variable& kernels, const ConvolutionOptions& options) {
  return conv_with(x, kernels, nullptr, options);
}
Variable conv(const Operand& x, const Variable& kernels, const Variable& bias,
              const ConvolutionOptions& options) {
  return conv_with(x, kernels, &bias, options);
}
Variable conv_transpose(const Operand& x, const Variable& kernels,
                        const TransposedConvolutionOptions& options) {
  return conv_transpose_with(x, kernels, nullptr, options);
}
Variable conv_transpose(const Operand& x, const Variable& kernels, const Variable& bias,
                        const TransposedConvolutionOptions& options) {
  return conv_transpose_with(x, kernels, &bias, options);
}

}  // namespace espalier
