#include "espalier/nn/onnx/size.h"

#include <algorithm>
#include <optional>
#include <utility>

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

/// Adds a product to a sum. False if its number would be too large.
bool add_term(std::vector<Size>& terms, const Size& term, int64_t factor) {
  const auto same = std::ranges::find_if(
      terms, [&](const Size& known) { return std::ranges::is_permutation(known.axes, term.axes); });
  int64_t number = 0;
  if (__builtin_mul_overflow(term.number, factor, &number)) return false;
  if (same != terms.end()) return !__builtin_add_overflow(same->number, number, &same->number);
  terms.push_back({number, term.axes});
  return true;
}

/// Zeros [n] for the sum of products. None if a product of sizes is subtracted, or more than there is.
std::optional<Variable> zeros_along_sum(const std::vector<Size>& terms) {
  std::vector<Variable> parts;
  int64_t less = 0;
  for (const Size& term : terms) {
    if (term.number > 0)
      parts.push_back(term.is_number() ? zeros_of(term.number) : zeros_along(term));
    else if (term.is_number())
      less = -term.number;
    else
      return std::nullopt;
  }
  if (parts.empty()) return std::nullopt;
  const Variable all = parts.size() == 1 ? parts[0] : concat(parts, 0);
  if (less == 0) return all;
  if (all.shape()[0] <= less) return std::nullopt;
  return slice(all, 0, less, open_end);
}

}  // namespace

bool may_differ(const Variable& x, int64_t axis) {
  return is_open_axis(x, axis) || (x.node()->lazy && axis == 0 && x.shape()[0] > 0);
}

bool Size::is_open() const {
  return std::ranges::any_of(axes, [](const SizeOf& of) { return is_open_axis(of.variable, of.axis); });
}

int64_t value_of(const Size& size) {
  int64_t value = size.number;
  if (!size.follows_else)
    for (const SizeOf& of : size.axes) value *= of.variable.shape()[of.axis];
  return value;
}

Size size_of_axis(const Variable& x, int64_t axis) {
  if (!may_differ(x, axis)) return {x.shape()[axis]};
  return {1, {{x, axis}}};
}

Size made_of(int64_t value, const std::vector<Size>& sizes) {
  Size result{value, {}, true};
  for (const Size& size : sizes)
    for (const SizeOf& of : size.axes)
      if (result.axes.empty() || (!result.is_open() && is_open_axis(of.variable, of.axis)))
        result.axes = {of};
  return result;
}

Size multiplied(const Size& a, const Size& b, int64_t value) {
  if (a.is_number() && a.number == 1) return b;
  if (b.is_number() && b.number == 1) return a;
  constexpr size_t most_axes = 16;
  Size result{1, a.axes};
  result.axes.insert(result.axes.end(), b.axes.begin(), b.axes.end());
  if (a.follows_else || b.follows_else || result.axes.size() > most_axes ||
      __builtin_mul_overflow(a.number, b.number, &result.number))
    return made_of(value, {a, b});
  if (result.number == 0) result.axes.clear();
  return result;
}

Size added(const Size& a, const Size& b, int64_t sign, int64_t value) {
  constexpr size_t most_terms = 16;
  std::vector<Size> terms;
  for (const auto& [size, factor] : {std::pair(&a, int64_t{1}), std::pair(&b, sign)}) {
    if (size->follows_else && size->terms.empty()) return made_of(value, {a, b});
    for (const Size& term : size->terms.empty() ? std::vector{*size} : size->terms)
      if (!add_term(terms, term, factor)) return made_of(value, {a, b});
  }
  std::erase_if(terms, [](const Size& term) { return term.number == 0; });
  if (terms.empty()) return {0};
  if (terms.size() == 1) return terms[0];
  if (terms.size() > most_terms) return made_of(value, {a, b});
  const std::optional<Variable> sum = zeros_along_sum(terms);
  Size result = sum && sum->shape()[0] == value ? Size{1, {{*sum, 0}}} : made_of(value, {a, b});
  result.terms = std::move(terms);
  return result;
}

Size divided(const Size& a, const Size& b, int64_t value) {
  if (b.is_number() && b.number == 1) return a;
  if (b.is_number() && b.number > 0 && a.is_product() && a.number > 0 && a.number % b.number != 0) {
    const Variable all = zeros_along(a);  // of every b-th element there are as many
    if (all.shape()[0] >= b.number) {
      const Variable part = slice(all, 0, b.number - 1, open_end, b.number);
      if (part.shape()[0] == value) return {1, {{part, 0}}};
    }
    return made_of(value, {a, b});
  }
  Size result = a;
  result.terms.clear();
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

Variable number_of(const Size& size) {
  if (!size.terms.empty()) {
    Variable sum = number_of(size.terms[0]);
    for (size_t i = 1; i < size.terms.size(); ++i) sum = sum + number_of(size.terms[i]);
    return sum;
  }
  Variable number(tensor(size.number));
  for (const SizeOf& of : size.axes) {
    const Variable& x = of.variable;
    const Variable along = is_real(x.dtype()) ? cast(x, int64) : x;
    number = number * cast(axis_size(along, of.axis), int64);
  }
  return number;
}

std::vector<Variable> numbers_of(const std::vector<Size>& sizes) {
  std::vector<Variable> numbers;
  for (const Size& size : sizes) numbers.push_back(number_of(size));
  return numbers;
}

std::optional<Variable> numbers_from(const Size& begin, const Size& end) {
  const Size count = added(end, begin, -1, value_of(end) - value_of(begin));
  if (!count.is_product() || count.number < 1) return std::nullopt;
  const SizeOf along = count.is_axis() ? count.axes[0] : SizeOf{zeros_along(count), 0};
  const Variable numbers = arange_like(along.variable, along.axis, int64);
  return begin.is_number() && begin.number == 0 ? numbers : numbers + number_of(begin);
}

}  // namespace espalier::onnx
