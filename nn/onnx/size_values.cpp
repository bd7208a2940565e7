#include "espalier/nn/onnx/size_values.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "espalier/core/node.h"
#include "espalier/core/sequences.h"
#include "espalier/core/tensor.h"
#include "espalier/ops/ops.h"

namespace espalier::onnx {

namespace {

/// More elements than shapes have.
constexpr int64_t most_elements = 4096;

bool has_sizes(const Value& value) { return !value.sizes.empty(); }

std::vector<int64_t> numbers_of(const Variable& x) {
  const Tensor wide = x.value().to(cpu()).contiguous_copy().to(int64);
  const auto span = wide.span<int64_t>();
  return {span.begin(), span.end()};
}

bool holds_integers(const Variable& x) {
  return x.defined() && !x.node()->lazy && (x.dtype() == int64 || x.dtype() == int32) &&
         x.shape().elements() <= most_elements;
}

std::vector<Size> elements_of(const Value& value) {
  if (has_sizes(value)) return value.sizes;
  std::vector<Size> sizes;
  for (const int64_t number : numbers_of(value.variable)) sizes.push_back({number});
  return sizes;
}

/// Which inputs of an operator that moves elements it moves; the others say where to. Empty for other ones.
std::vector<size_t> moved_inputs(const FileNode& node) {
  static const std::set<std::string_view> first{
      "Identity", "Squeeze", "Unsqueeze", "Reshape",        "Flatten",  "Gather", "Slice",   "Split",
      "Expand",   "Tile",    "Transpose", "GatherElements", "GatherND", "Cast",   "Compress"};
  if (first.contains(node.type())) return {0};
  if (node.type() == "Where") return {1, 2};
  if (node.type() != "Concat") return {};
  std::vector<size_t> all(node.count());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

/// The node is translated once more, with positions in place of the elements.
std::vector<std::vector<Size>> moved(const FileNode& node, Translate translate,
                                     const std::vector<size_t>& from) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.count(); ++i) inputs.push_back(node.value(i));
  std::vector<Size> all;
  for (const size_t i : from) {
    const std::vector<Size> elements = elements_of(inputs[i]);
    std::vector<int64_t> places;
    for (size_t k = 0; k < elements.size(); ++k) places.push_back(static_cast<int64_t>(all.size() + k));
    all.insert(all.end(), elements.begin(), elements.end());
    const Variable& x = inputs[i].variable;
    inputs[i] = {Variable(tensor_from(places, x.shape()).to(x.dtype())), true};
  }
  FileNode marked = node.with_inputs(std::move(inputs));
  std::vector<std::vector<Size>> result;
  for (const Variable& output : translate(marked)) {
    auto& sizes = result.emplace_back();
    if (!holds_integers(output)) continue;
    for (const int64_t place : numbers_of(output)) {
      if (place < 0 || place >= static_cast<int64_t>(all.size())) node.fail("it moves elements elsewhere");
      sizes.push_back(all[static_cast<size_t>(place)]);
    }
  }
  return result;
}

/// Element by element, of which one operand may have a single one.
std::vector<Size> combined(const FileNode& node, const std::vector<int64_t>& values) {
  const std::vector<Size> a = elements_of(node.value(0)), b = elements_of(node.value(1));
  std::vector<Size> sizes;
  for (size_t i = 0; i < values.size(); ++i) {
    const Size &left = a[a.size() == 1 ? 0 : i], &right = b[b.size() == 1 ? 0 : i];
    if (node.type() == "Mul")
      sizes.push_back(multiplied(left, right, values[i]));
    else if (node.type() == "Div")
      sizes.push_back(divided(left, right, values[i]));
    else
      sizes.push_back(added(left, right, node.type() == "Add" ? 1 : -1, values[i]));
  }
  return sizes;
}

bool is_combined(const FileNode& node, size_t elements) {
  static const std::set<std::string_view> known{"Add", "Sub", "Mul", "Div"};
  if (node.count() != 2 || !known.contains(node.type())) return false;
  for (size_t i = 0; i < 2; ++i) {
    const auto own = static_cast<size_t>(node[i].shape().elements());
    if (!holds_integers(node[i]) || (own != 1 && own != elements)) return false;
  }
  return true;
}

/// Made of all sizes, in a way that is not followed.
std::vector<Size> made_of_all(const FileNode& node, const std::vector<int64_t>& values) {
  std::vector<Size> all;
  for (size_t i = 0; i < node.count(); ++i)
    all.insert(all.end(), node.value(i).sizes.begin(), node.value(i).sizes.end());
  std::vector<Size> sizes;
  for (const int64_t value : values) sizes.push_back(made_of(value, all));
  return sizes;
}

}  // namespace

std::vector<Value> with_sizes_read(const FileNode& node) {
  static const std::set<std::string_view> comparing{"Equal", "Less", "LessOrEqual", "Greater",
                                                    "GreaterOrEqual"};
  static const std::set<std::string_view> computing{"Add", "Sub", "Mul",   "Div",   "Mod",
                                                    "Min", "Max", "Where", "Gather"};
  const bool compares = comparing.contains(node.type());
  if (!compares && !computing.contains(node.type())) return {};
  const auto is_open = [&](size_t i) { return std::ranges::any_of(node.value(i).sizes, &Size::is_open); };
  const auto is_negative = [&](size_t i) {  // sizes never are
    return !has_sizes(node.value(i)) && holds_integers(node[i]) &&
           std::ranges::all_of(numbers_of(node[i]), [](int64_t number) { return number < 0; });
  };
  bool read = compares;
  for (size_t i = 0; i < node.count(); ++i) {
    if (!node.has(i)) return {};
    read |= !node.value(i).constant;
    if (compares && is_negative(i)) return {};
  }
  if (node.type() == "Gather") read = node.count() == 2 && !has_sizes(node.value(0));
  std::vector<Value> inputs;
  for (size_t i = 0; read && i < node.count(); ++i) {
    if (!is_open(i)) continue;
    if (inputs.empty())
      for (size_t k = 0; k < node.count(); ++k) inputs.push_back(node.value(k));
    const Variable numbers = stack(numbers_of(node.sums(i)), 0);
    inputs[i] = {cast(reshape(numbers, node[i].shape()), node[i].dtype()), false};
  }
  return inputs;
}

std::vector<std::vector<Size>> sizes_after(const FileNode& node, Translate translate, const Outputs& made) {
  std::vector<size_t> sized;
  for (size_t i = 0; i < node.count(); ++i)
    if (has_sizes(node.value(i))) sized.push_back(i);
  std::vector<std::vector<Size>> result(made.size());
  if (node.type() == "Shape" || node.type() == "Size") return result;  // they do not read the elements
  if (sized.empty() || std::ranges::none_of(made, holds_integers)) return result;
  const std::vector<size_t> from = moved_inputs(node);
  const bool moves =
      std::ranges::all_of(sized, [&](size_t i) { return std::ranges::find(from, i) != from.end(); }) &&
      std::ranges::all_of(from, [&](size_t i) { return node.has(i) && holds_integers(node[i]); });
  if (!from.empty() && moves) {
    result = moved(node, translate, from);
  } else {
    for (size_t i = 0; i < made.size(); ++i) {
      if (!holds_integers(made[i])) continue;
      const std::vector<int64_t> values = numbers_of(made[i]);
      result[i] = is_combined(node, values.size()) ? combined(node, values) : made_of_all(node, values);
    }
    if (node.type() == "Neg" && made.size() == 1) {
      const std::vector<Size> sizes = elements_of(node.value(0));
      for (size_t i = 0; i < sizes.size(); ++i)
        result[0][i] = multiplied({-1}, sizes[i], result[0][i].number);
    }
    if (node.type() == "ReduceProd" && made.size() == 1 && made[0].shape().elements() == 1) {
      Size all;
      const int64_t value = numbers_of(made[0])[0];
      for (const Size& size : elements_of(node.value(0))) all = multiplied(all, size, value);
      result[0] = {all};
    }
  }
  for (std::vector<Size>& sizes : result)
    if (std::ranges::all_of(sizes, &Size::is_number)) sizes.clear();
  return result;
}

}  // namespace espalier::onnx
