#include "espalier/core/open_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"

namespace espalier {

namespace {

/// What stands for open axes in the second inference: divisible as often as the nominal size.
constexpr int64_t other_size = nominal_size + 64;

/// Kept for ever: there are as many as lines that write open axes.
const OpenAxesOf* open_axes_of(uint64_t axes, const std::source_location& where) {
  using Key = std::tuple<uint64_t, std::string_view, uint32_t, uint32_t>;
  static auto* const known = new std::map<Key, const OpenAxesOf*>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  const OpenAxesOf*& found = (*known)[{axes, where.file_name(), where.line(), where.column()}];
  if (!found) found = new OpenAxesOf{axes, where};
  return found;
}

uint64_t differing_axes(const Shape& a, const Shape& b) {
  uint64_t axes = 0;
  for (size_t i = 0; i < std::min(a.rank(), b.rank()); ++i)
    if (a.dims()[i] != b.dims()[i] || a.rank() != b.rank()) axes |= uint64_t{1} << std::min<size_t>(i, 63);
  return axes;
}

/// `other`: the second shapes of all outputs. Nothing is kept if no axis is open.
void keep_other_shapes(Node& node, std::vector<Shape> other) {
  bool open = false;
  for (size_t i = 0; i < other.size(); ++i) open |= !(other[i] == node.outputs[i].spec.shape);
  if (!open) return;
  Node::Rare& rare = node.rare();
  rare.user_shapes.clear();
  for (size_t i = 0; i < other.size(); ++i) {
    const Shape& own = node.outputs[i].spec.shape;
    const uint64_t axes = differing_axes(own, other[i]);
    rare.user_shapes.push_back(axes ? own.with_open_axes(open_axes_of(axes, node.where)) : own);
  }
  rare.other_shapes = std::move(other);
  rare.sizes_unknown = false;
}

}  // namespace

void set_open_axes(Node& source, std::span<const size_t> axes) {
  Shape other = source.outputs[0].spec.shape;
  for (const size_t axis : axes) other.dims()[axis] = other_size;
  keep_other_shapes(source, {std::move(other)});
}

void copy_open_axes(const Variable& x, Node& leaf, bool row) {
  const Node::Rare* from = x.node()->rare_if_any();
  if (!from || from->other_shapes.empty()) return;
  Shape other = from->other_shapes[x.output()];
  if (row) other = Shape(Dims(other.begin() + 1, other.end()));
  keep_other_shapes(leaf, {std::move(other)});
}

void follow_open_axes(Node& node, const InputSpecs& specs) {
  bool open = false, unknown = false;
  for (const Edge& input : node.inputs)
    if (const Node::Rare* from = input.node()->rare_if_any()) {
      open |= !from->other_shapes.empty();
      unknown |= from->sizes_unknown;
    }
  if (!open && !unknown) return;
  try {
    if (open && !unknown) {
      std::vector<Spec> others;
      InputSpecs in;
      others.reserve(specs.size());
      for (size_t i = 0; i < specs.size(); ++i) {
        const Node::Rare* from = node.inputs[i].node()->rare_if_any();
        others.push_back(*specs[i]);
        if (from && !from->other_shapes.empty())
          others.back().shape = from->other_shapes[node.inputs[i].output()];
        in.push_back(&others.back());
      }
      std::vector<Shape> shapes;
      for (Spec& spec : node.op().infer(in)) shapes.push_back(std::move(spec.shape));
      if (shapes.size() == node.outputs.size()) return keep_other_shapes(node, std::move(shapes));
    }
  } catch (const std::exception&) {  // a size that this op cannot have, as the nominal one can
  }
  node.rare().sizes_unknown = true;
}

bool is_open_axis(const Node& node, uint32_t output, size_t axis) {
  const Node::Rare* rare = node.lazy ? node.rare_if_any() : nullptr;
  if (!rare) return false;
  const Shape& shape = node.outputs[output].spec.shape;
  if (!rare->other_shapes.empty())
    return (differing_axes(shape, rare->other_shapes[output]) >> axis & 1) != 0;
  return rare->sizes_unknown && shape.dims()[axis] > 0 && shape.dims()[axis] % nominal_size == 0;
}

bool is_open_axis(const Variable& x, int64_t axis) {
  const size_t at = resolve_axis(axis, x.rank(), "shape");
  return is_open_axis(*x.node(), x.output(), at);
}

bool has_open_axes(const Variable& x, size_t first) {
  for (size_t axis = first; axis < x.node()->outputs[x.output()].spec.shape.rank(); ++axis)
    if (is_open_axis(x, static_cast<int64_t>(axis))) return true;
  return false;
}

const Shape& shape_for_users(const Node& node, uint32_t output) {
  const Node::Rare* rare = node.rare_if_any();
  return rare && !rare->user_shapes.empty() ? rare->user_shapes[output] : node.outputs[output].spec.shape;
}

bool is_made_of_nominal_size(int64_t number) {
  constexpr int64_t near = 8;
  if (number == std::numeric_limits<int64_t>::min()) return false;  // it has no opposite
  const int64_t magnitude = number < 0 ? -number : number;
  for (const int64_t part : {2, 4, 8, 16, 32})
    if (magnitude == nominal_size / part || magnitude == nominal_size / part + 1) return true;
  return magnitude >= nominal_size - near &&
         (magnitude % nominal_size == 0 || magnitude <= nominal_size + near);
}

bool may_be_open(std::span<const int64_t> sizes) {
  // Multiples, and what strides and windows leave of an open size.
  constexpr int64_t near = 64;
  const auto is_near = [](int64_t size, int64_t open) {
    return size >= open - near && (size % open + near) % open <= 2 * near;
  };
  const auto open = [&](int64_t size) {
    for (const int64_t part : {2, 4, 8, 16, 32})
      if (size <= nominal_size / part + near && is_near(size, nominal_size / part)) return true;
    return is_near(size, nominal_size);
  };
  return size_text(nominal_size) == "-1" && std::ranges::any_of(sizes, open);
}

namespace {

/// Numbers that sizes of open axes become in the functions that write a tree. Users cannot read these sizes.
class SizesOfTree {
 public:
  explicit SizesOfTree(std::span<Node* const> tree) {
    for (const Node* node : tree) {
      const Node::Rare* rare = node->rare_if_any();
      if (!rare) continue;
      unknown_ |= rare->sizes_unknown;
      for (size_t k = 0; k < rare->other_shapes.size(); ++k)
        add(node->outputs[k].spec.shape, rare->other_shapes[k]);
    }
  }

  /// A size, or one from the first or to the last element, or what several nominal ones are in all.
  bool made(int64_t number) const {
    // Those at the ends, which stand for "all", have no opposite or no successor.
    using Limits = std::numeric_limits<int64_t>;
    if (number <= Limits::min() + 1 || number == Limits::max()) return false;
    const int64_t magnitude = number < 0 ? -number : number;
    if (unknown_ && is_made_of_nominal_size(magnitude)) return true;
    if (magnitude > 0 && magnitude % nominal_size == 0) return true;
    return std::ranges::any_of(std::array{-1, 0, 1}, [&](int by) { return sizes_.contains(magnitude + by); });
  }
  /// Also multiples of it, one over it, square roots and logarithms.
  bool made(double number) const {
    // Less than the smallest step of a float32 that has been squared; exponentials enlarge it.
    constexpr double precision = 3e-7, of_exponential = 2e-6;
    const double x = std::abs(number);
    for (const double size : {x, 1 / x, x * x, 1 / (x * x)})
      if (is_multiple(size, precision)) return true;
    for (const double power : {std::exp(x), std::exp2(x), std::pow(10.0, x)})
      if (std::abs(power / nominal_size - 1) <= of_exponential) return true;
    return false;
  }
  bool made(const Shape& shape) const {
    return std::ranges::any_of(shape.dims(), [&](int64_t size) { return made(size); });
  }
  bool made(const AttributeValue& value) const {
    return std::visit(
        [&]<class T>(const T& v) {
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
            return made(v);
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            return made(Shape(v));
          else
            return false;
        },
        value);
  }

 private:
  void add(const Shape& own, const Shape& other) {
    for (size_t i = 0; i < own.rank(); ++i)
      if (own.rank() == other.rank() && own.dims()[i] != other.dims()[i]) sizes_.insert(own.dims()[i]);
  }
  bool is_multiple(double number, double precision) const {
    for (const double size : {1.0 * nominal_size, 1.0 * nominal_size * nominal_size})
      for (const double part : {1, 2, 4}) {
        const double multiple = number * part / size, nearest = std::round(multiple);
        if (nearest >= 1 && nearest <= 64 && std::abs(multiple - nearest) <= precision * nearest) return true;
      }
    return std::ranges::any_of(
        sizes_, [&](int64_t size) { return std::abs(number / static_cast<double>(size) - 1) <= precision; });
  }

  std::set<int64_t> sizes_;
  bool unknown_ = false;  // of some nodes
};

/// What of a node was made of a nominal size.
std::optional<std::string> embedded(const Node& node, const SizesOfTree& sizes) {
  if (node.op().feed()) return std::nullopt;
  for (const auto& [name, value] : node.op().attributes())
    if (sizes.made(value)) return fmt::format("its '{}'", name);
  if (!node.is_leaf()) return std::nullopt;
  const Output& output = node.outputs[0];
  if (sizes.made(output.spec.shape))
    return fmt::format("its shape [{}]", fmt::join(output.spec.shape.begin(), output.spec.shape.end(), ", "));
  if (!is_constant(node.op()) || output.spec.shape.elements() != 1 || output.spec.dtype == DType::boolean)
    return std::nullopt;
  const double number = output.value.to(cpu()).item();
  const bool made =
      is_real(output.spec.dtype)
          ? sizes.made(number)
          : std::abs(number) < 0x1p63 && sizes.made(static_cast<int64_t>(number));  // 2^63 - 1 is rounded up
  return made ? std::optional(fmt::format("the number {}", number)) : std::nullopt;
}

}  // namespace

void check_open_sizes(std::span<Node* const> tree, std::string_view what) {
  const bool open = std::ranges::any_of(tree, [](const Node* node) {
    const auto* feed = node->op().feed();
    return feed && !(*feed)->open_axes().empty();
  });
  if (!open) return;
  const SizesOfTree sizes(tree);
  for (const Node* node : tree)
    if (const auto made = embedded(*node, sizes))
      located(node->where, [&] {
        throw UnsupportedError(fmt::format(
            "{}: '{}' was written with {}, which is made of {}, the size that stands for an open axis (-1) "
            "until a batch comes; write -1, or take sizes from a Variable: axis_size and arange_like, "
            "zeros_like "
            "and full_like, expand_as, flatten and unflatten_like do",
            what, node->op().name(), *made, nominal_size));
      });
}

}  // namespace espalier
