// Constants, conversions, and numbers in order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/core/sequences.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

Outputs constant(FileNode& node) {
  if (node.has("value_float")) return {Variable(tensor(node.real("value_float", 0)).to(float32))};
  if (node.has("value_int")) return {Variable(tensor(node.integer("value_int")))};
  if (node.has("value_ints")) {
    const std::vector<int64_t> list = node.integers("value_ints");
    return {Variable(tensor_from(list, {static_cast<int64_t>(list.size())}))};
  }
  if (node.has("value_floats")) {
    const std::vector<double> list = node.reals("value_floats");
    return {Variable(tensor_from(list, {static_cast<int64_t>(list.size())}).to(float32))};
  }
  if (node.has("value_string") || node.has("value_strings")) node.refuse("strings are not supported");
  if (node.has("sparse_value")) node.refuse("sparse tensors are not supported");
  return {Variable(node.tensor("value"))};
}

Outputs constant_of_shape(FileNode& node) {
  const Tensor value = node.has("value") ? node.tensor("value").reshape({1}) : zeros({1});
  if (const Variable& like = node.value(0).shape_of; like.defined() && like.node()->lazy) {
    node.set_fed();
    return {full_like(cast(like, value.dtype()), reshape(Variable(value), {}))};
  }
  const std::vector<Size> sizes = node.sizes(0);
  for (const Size& size : sizes)
    if (size.number < 0) node.fail(fmt::format("it makes an axis of size {}", size.number));
  if (!std::ranges::all_of(sizes, &Size::is_number)) {
    node.set_fed();
    return {broadcast_like(reshape(Variable(value), {}), shaped_like(node, sizes, value.dtype()))};
  }
  return {broadcast_to(reshape(Variable(value), {}), Shape(node.integers(0)))};
}

Variable converted(const FileNode& node, const Variable& x, DType to) {
  node.ignore("saturate");
  node.ignore("round_mode");
  return x.dtype() == to ? x : cast(x, to);
}

Outputs cast_to(FileNode& node) {
  const DType to = need_dtype(static_cast<int32_t>(node.integer("to")), node.label());
  // Of axes that may have other sizes these are read in each run.
  const bool integers = node[0].dtype() == int64 || node[0].dtype() == int32;
  if (node.value(0).constant && integers && is_real(to) && !node.value(0).sizes.empty()) {
    node.set_fed();
    return {converted(node, reshape(stack(numbers_of(node.sums(0)), 0), node[0].shape()), to)};
  }
  return {converted(node, node[0], to)};
}

Outputs cast_like(FileNode& node) {
  if (node.value(0).constant) node.set_known();
  return {converted(node, node[0], node[1].dtype())};
}

Outputs range_of(FileNode& node) {
  const DType dtype = node[0].dtype();
  const auto follows = [&](size_t i) { return node.known(i) && !node.value(i).sizes.empty(); };
  if (node.count() == 3 && !is_real(dtype) && (follows(0) || follows(1)) && node.integer(2) == 1) {
    const std::vector<Size> begin = node.sums(0), end = node.sums(1);
    if (begin.size() != 1 || end.size() != 1) node.fail("it needs a number to begin with, and one to end at");
    if (const auto numbers = numbers_from(begin[0], end[0])) {
      node.set_fed();
      return {cast(*numbers, dtype)};
    }
  }
  const double step = node.number(2), begin = node.number(0), end = node.number(1);
  if (!is_real(dtype)) {
    const int64_t whole_begin = node.integer(0), whole_end = node.integer(1), whole_step = node.integer(2);
    if (whole_step == 0) node.fail("its step is 0");
    const double whole_count =
        (static_cast<double>(whole_end) - static_cast<double>(whole_begin)) / static_cast<double>(whole_step);
    if (whole_count > 1e15) node.refuse("it has too many numbers");
    node.check_constant({static_cast<int64_t>(std::max(0.0, whole_count))}, int64);
    return {Variable(
        arange(whole_begin, whole_end, whole_step, is_small_integer(dtype) ? int64 : dtype).to(dtype))};
  }
  if (!(step != 0) || !std::isfinite((end - begin) / step)) node.fail("its numbers have no end");
  const double count = std::max(0.0, std::ceil((end - begin) / step));
  if (count > 1e15) node.refuse("it has too many numbers");
  node.check_constant({static_cast<int64_t>(count)}, float64);
  std::vector<double> numbers;
  for (double i = 0; i < count; ++i) numbers.push_back(begin + i * step);
  return {Variable(tensor_from(numbers, {static_cast<int64_t>(count)}).to(dtype))};
}

Outputs eye_like(FileNode& node) {
  const Variable& x = node[0];
  const DType dtype =
      node.has("dtype") ? need_dtype(static_cast<int32_t>(node.integer("dtype")), node.label()) : x.dtype();
  const int64_t k = node.integer("k", 0);
  if (x.rank() != 2) node.fail(fmt::format("{} is no matrix", x.shape().str()));
  check_lengths(node, {k});
  if (is_open_axis(x, 0) || is_open_axis(x, 1)) node.refuse("its input has an open axis");
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  node.check_constant(x.shape(), float32);
  Tensor unit = zeros(x.shape());
  for (int64_t row = std::max<int64_t>(0, -k); row < rows && row + k < columns; ++row)
    unit.at<float>({row, row + k}) = 1;
  return {Variable(unit.to(dtype))};
}

/// Elements before each one, or up to it, are combined; from the end if `reverse`.
template <class Accumulate>
Outputs accumulated(FileNode& node, double neutral, Accumulate&& accumulate) {
  const int64_t axis = axis_of(node, node[0], node.integer(1));
  const bool reverse = node.integer("reverse", 0) != 0, exclusive = node.integer("exclusive", 0) != 0;
  return {computed(
      [&](const Variable& x) {
        Variable y = accumulate(reverse ? flip(x, axis) : x, axis);
        if (exclusive) {
          std::vector<Padding> paddings(x.rank() - static_cast<size_t>(axis));
          paddings[0] = {1, -1};
          y = pad(y, paddings, {.value = neutral});
        }
        return reverse ? flip(y, axis) : y;
      },
      node[0])};
}

}  // namespace

void add_creation(Registry& all) {
  all.add("Constant", 1, constant);
  all.add("ConstantOfShape", 9, constant_of_shape);
  all.add("Cast", 6, cast_to);
  all.add("CastLike", 15, cast_like);
  all.add("Range", 11, range_of);
  all.add("EyeLike", 9, eye_like);
  all.add("CumSum", 11, [](FileNode& n) {
    return accumulated(n, 0, [](const auto& x, int64_t axis) { return cumsum(x, axis); });
  });
  all.add("CumProd", 26, [](FileNode& n) {
    return accumulated(n, 1, [](const auto& x, int64_t axis) { return cumprod(x, axis); });
  });
}

}  // namespace espalier::onnx
