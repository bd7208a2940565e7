#include "espalier/ops/convolution/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/core/open_sizes.h"

namespace espalier {

namespace {

std::vector<int64_t> numbers(const Dims& dims) { return {dims.begin(), dims.end()}; }

/// a · b + c; the largest number if that is more than 64 bits count.
int64_t product_and(int64_t a, int64_t b, int64_t c) {
  int64_t result = 0;
  const bool fits = !__builtin_mul_overflow(a, b, &result) && !__builtin_add_overflow(result, c, &result);
  return fits ? result : std::numeric_limits<int64_t>::max();
}

constexpr int64_t largest_convolution_size = 0x7fffffff;  // that the libraries can index

/// Whether the libraries can index it.
bool is_indexable(const ConvolutionSizes& all) {
  return std::ranges::max({all.in_places(), all.out_places(),
                           product_and(all.in_channels, all.kernel_places(), 0),
                           all.groups * all.out_channels}) <= largest_convolution_size;
}

}  // namespace

Attributes ConvolutionForm::attributes() const {
  return {{"stride", numbers(stride)}, {"dilation", numbers(dilation)},
          {"before", numbers(before)}, {"after", numbers(after)},
          {"groups", groups},          {"channels_last", channels_last}};
}

ConvolutionForm ConvolutionForm::read(AttributeReader& reader) {
  ConvolutionForm form;
  form.stride = reader.integers("stride");
  form.dilation = reader.integers("dilation");
  form.before = reader.integers("before");
  form.after = reader.integers("after");
  form.groups = reader.integer("groups", 1);
  form.channels_last = reader.flag("channels_last");
  const auto check = [&](const Dims& list, std::string_view name, int64_t least) {
    if (list.size() != form.axes() || list.empty()) reader.refuse(name);
    for (const int64_t number : list)
      if (number < least || number > largest_convolution_size) reader.refuse(name);
  };
  check(form.stride, "stride", 1);
  check(form.dilation, "dilation", 1);
  check(form.before, "before", 0);
  check(form.after, "after", 0);
  return form;
}

ConvolutionForm ConvolutionForm::of(const Op& op) {
  const Attributes attributes = op.attributes();
  AttributeReader reader(op.name(), attributes);
  return read(reader);
}

Dims ConvolutionForm::channels_second(const Dims& dims) const {
  Dims result = dims;
  if (channels_last && dims.size() > 2) std::rotate(result.begin() + 1, result.end() - 1, result.end());
  return result;
}

Shape ConvolutionForm::in_own_order(const Shape& shape) const {
  Shape result = shape;
  Dims& dims = result.dims();
  if (channels_last && dims.size() > 2) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return result;
}

int64_t ConvolutionForm::span(size_t axis, int64_t kernel) const {
  return product_and(dilation[axis], kernel - 1, 1);
}

int64_t ConvolutionForm::count(size_t axis, int64_t size, int64_t kernel) const {
  const int64_t padded = product_and(1, size, before[axis] + after[axis]), reach = span(axis, kernel);
  return padded < reach ? 0 : (padded - reach) / stride[axis] + 1;
}

int64_t ConvolutionForm::size_for(size_t axis, int64_t count, int64_t kernel) const {
  return product_and(stride[axis], count - 1, span(axis, kernel)) - before[axis] - after[axis];
}

Shape ConvolutionForm::output(const Shape& x, const Shape& kernels, std::string_view op) const {
  if (axes() > most_convolution_axes)
    throw UnsupportedError(fmt::format("{}: at most {} axes can be convolved, not the {} of {}", op,
                                       most_convolution_axes, axes(), x.str()));
  if (x.rank() != axes() + 2 || kernels.rank() != axes() + 2)
    throw ShapeError(
        fmt::format("{}: takes [batch, channels] and {} more axes, and kernels [channels, channels] with as "
                    "many, not {} and {}",
                    op, axes(), x.str(), kernels.str()));
  const Dims from = channels_second(x.dims());
  const Dims& weights = kernels.dims();
  if (product_and(weights[1], groups, 0) != from[1])
    throw ShapeError(fmt::format("{}: {} has {} channels, but kernels of shape {}, in {}, read {}", op,
                                 x.str(), size_text(from[1]), kernels.str(),
                                 groups == 1 ? "one group" : fmt::format("{} groups", groups),
                                 size_text(product_and(weights[1], groups, 0))));
  if (weights[0] % groups != 0)
    throw ShapeError(fmt::format("{}: {} kernels (shape {}) cannot be divided into {} groups", op,
                                 size_text(weights[0]), kernels.str(), groups));
  Shape out{from[0], weights[0]};
  for (size_t i = 0; i < axes(); ++i) {
    if (weights[i + 2] < 1)
      throw ShapeError(fmt::format("{}: the kernels of shape {} are empty", op, kernels.str()));
    if (from[i + 2] == 0) throw ShapeError(fmt::format("{}: axis {} of {} is empty", op, i + 2, x.str()));
    const int64_t places = count(i, from[i + 2], weights[i + 2]);
    if (places == 0)
      throw ShapeError(fmt::format(
          "{}: a kernel of {} with dilation {} reaches over {} elements, but axis {} of {} has {} with {} of "
          "padding",
          op, weights[i + 2], dilation[i], span(i, weights[i + 2]), i + 2, x.str(), size_text(from[i + 2]),
          before[i] + after[i]));
    out.dims().push_back(places);
  }
  check_countable(out, op);
  out = in_own_order(out);
  if (!may_be_open({from.data(), from.size()}) && !is_indexable(sizes(x, kernels, out)))
    throw UnsupportedError(fmt::format("{}: {} with kernels {} is more than the libraries can index", op,
                                       x.str(), kernels.str()));
  return out;
}

ConvolutionSizes ConvolutionForm::checked_sizes(const Shape& x, const Shape& kernels, const Shape& y) const {
  const ConvolutionSizes all = sizes(x, kernels, y);
  if (!is_indexable(all))
    throw UnsupportedError(
        fmt::format("a convolution of {} with kernels {} to {} is more than the libraries can index", x.str(),
                    kernels.str(), y.str()));
  return all;
}

ConvolutionSizes ConvolutionForm::sizes(const Shape& x, const Shape& kernels, const Shape& y) const {
  ConvolutionSizes s;
  const Dims from = channels_second(x.dims()), to = channels_second(y.dims());
  s.batch = from[0];
  s.groups = groups;
  s.in_channels = kernels.dims()[1];
  s.out_channels = kernels.dims()[0] / groups;
  const size_t first = most_convolution_axes - axes();
  for (size_t i = 0; i < axes(); ++i) {
    s.in[first + i] = from[i + 2];
    s.out[first + i] = to[i + 2];
    s.kernel[first + i] = kernels.dims()[i + 2];
    s.stride[first + i] = stride[i];
    s.dilation[first + i] = dilation[i];
    s.before[first + i] = before[i];
  }
  return s;
}

}  // namespace espalier
