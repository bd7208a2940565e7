#include "espalier/nn/onnx/size.h"

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/core/sequences.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/axis_groups.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier::onnx {

namespace {

/// The position of `x` among the operands, from 1 on; that of `first` is 0.
int64_t operand_of(const Variable& x, const Variable& first, std::vector<Variable>& others) {
  const auto same = [&](const Variable& y) { return y.node() == x.node() && y.output() == x.output(); };
  if (same(first)) return 0;
  const auto known = std::ranges::find_if(others, same);
  if (known == others.end()) {
    others.push_back(x);
    return static_cast<int64_t>(others.size());
  }
  return known - others.begin() + 1;
}

/// Zeros [n], which take no memory.
Variable zeros_of(int64_t n) { return broadcast_to(Variable(zeros({})), {n}); }

/// Zeros [n] for an axis of that size.
Variable along(const SizeOf& of) {
  Variable x = of.variable;
  Dims others;
  for (int64_t axis = 0; axis < static_cast<int64_t>(x.rank()); ++axis) {
    if (axis == of.axis) continue;
    others.push_back(axis);
    if (x.shape()[axis] > 1) x = slice(x, axis, 0, 1);
  }
  x = zeros_like(x.dtype() == float32 ? x : cast(x, float32));
  return others.empty() ? x : sum(x, Axes(others));
}

/// Zeros [n] for the product of sizes.
Variable zeros_along(const Size& size) {
  std::vector<Variable> parts;
  const size_t rank = size.axes.size() + (size.number == 1 ? 0 : 1);
  const auto placed = [&](Variable vector, size_t at) {
    for (size_t i = 0; i < at; ++i) vector = unsqueeze(vector, 0);
    for (size_t i = at + 1; i < rank; ++i) vector = unsqueeze(vector, -1);
    parts.push_back(vector);
  };
  for (size_t i = 0; i < size.axes.size(); ++i) placed(along(size.axes[i]), i);
  if (rank > size.axes.size()) placed(zeros_of(size.number), size.axes.size());
  if (parts.size() == 1) return parts[0];
  return merge_axes(broadcast_tensors(parts)[0], {static_cast<int64_t>(rank)});
}

}  // namespace

bool is_open(const Variable& x, int64_t axis) { return x.node()->lazy && is_open_size(x.shape()[axis]); }

bool may_differ(const Variable& x, int64_t axis) {
  return is_open(x, axis) || (x.node()->lazy && axis == 0 && x.shape()[0] > 0);
}

bool Size::is_open() const {
  return std::ranges::any_of(axes, [](const SizeOf& of) { return onnx::is_open(of.variable, of.axis); });
}

Size size_of_axis(const Variable& x, int64_t axis) {
  if (!may_differ(x, axis)) return {x.shape()[axis]};
  return {1, {{x, axis}}};
}

Size made_of(int64_t value, const std::vector<Size>& sizes) {
  Size result{value, {}, true};
  for (const Size& size : sizes)
    for (const SizeOf& of : size.axes)
      if (result.axes.empty() || (!result.is_open() && is_open(of.variable, of.axis))) result.axes = {of};
  return result;
}

Size multiplied(const Size& a, const Size& b, int64_t value) {
  constexpr size_t most_axes = 16;
  Size result{1, a.axes};
  result.axes.insert(result.axes.end(), b.axes.begin(), b.axes.end());
  if (a.follows_else || b.follows_else || result.axes.size() > most_axes ||
      __builtin_mul_overflow(a.number, b.number, &result.number))
    return made_of(value, {a, b});
  if (result.number == 0) result.axes.clear();
  return result;
}

Size divided(const Size& a, const Size& b, int64_t value) {
  Size result = a;
  bool exact = !a.follows_else && !b.follows_else && b.number != 0 && a.number % b.number == 0;
  for (const SizeOf& of : b.axes) {
    const auto same = std::ranges::find(result.axes, of);
    exact &= same != result.axes.end();
    if (same != result.axes.end()) result.axes.erase(same);
  }
  if (!exact) return made_of(value, {a, b});
  result.number = a.number / b.number;
  return result;
}

Variable reshape_to(const Variable& x, const std::vector<Size>& sizes) {
  std::vector<Size> to = sizes;
  // The first axis of a feed may have another size in each run, though it has a number here.
  if (!to.empty() && x.rank() > 0 && x.shape().elements() > 0 && may_differ(x, 0) && to[0].is_number() &&
      to[0].number == x.shape()[0])
    to[0] = size_of_axis(x, 0);
  const auto is_left = [](const Size& size) { return size.is_number() && size.number == -1; };
  const auto follows = [&](const Size& size) { return !size.is_number() || is_left(size); };
  const auto differing = std::ranges::count_if(to, follows);
  const bool empty =
      std::ranges::any_of(to, [](const Size& size) { return size.is_number() && size.number == 0; });
  if (differing == 0 || (differing == 1 && x.node()->lazy && !empty) ||
      std::ranges::all_of(to, [](const Size& size) { return size.is_number(); })) {
    std::vector<int64_t> numbers;
    for (const Size& size : to) numbers.push_back(follows(size) ? -1 : size.number);
    return reshape(x, Shape(numbers));
  }
  std::vector<Variable> others;
  std::vector<std::vector<AxisOf>> groups;
  for (const Size& size : to) {
    auto& group = groups.emplace_back();
    if (size.number != 1 || size.axes.empty()) group.push_back({AxisOf::number, size.number});
    for (const SizeOf& of : size.axes) group.push_back({operand_of(of.variable, x, others), of.axis});
  }
  return reshape_by(x, others, groups);
}

Variable shaped_as(const std::vector<Size>& sizes) {
  std::vector<Variable> parts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Variable part = sizes[i].is_number() ? zeros_of(sizes[i].number) : zeros_along(sizes[i]);
    for (size_t k = i + 1; k < sizes.size(); ++k) part = unsqueeze(part, -1);
    parts.push_back(part);
  }
  if (parts.empty()) return Variable(zeros({}));
  return parts.size() == 1 ? parts[0] : broadcast_tensors(parts)[0];
}

}  // namespace espalier::onnx
