#include "espalier/core/open_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"

namespace espalier {

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
    return size >= open - near && (size + near) % open <= 2 * near;
  };
  const auto open = [&](int64_t size) {
    for (const int64_t part : {2, 4, 8, 16, 32})
      if (size <= nominal_size / part + near && is_near(size, nominal_size / part)) return true;
    return is_near(size, nominal_size);
  };
  return size_text(nominal_size) == "-1" && std::ranges::any_of(sizes, open);
}

namespace {

bool is_made_of_size(int64_t number) { return is_made_of_nominal_size(number); }

/// Whether a number is a small multiple of the size, of its square, or of a simple part of it.
bool is_multiple_of_size(double number, double precision) {
  for (const double size : {1.0 * nominal_size, 1.0 * nominal_size * nominal_size})
    for (const double part : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024}) {
      const double multiple = number * part / size, nearest = std::round(multiple);
      if (nearest >= 1 && nearest <= 64 && std::abs(multiple - nearest) <= precision * nearest) return true;
    }
  return false;
}

/// Also one over it, square roots and logarithms.
bool is_made_of_size(double number) {
  // Less than the smallest step of a float32 that has been squared; exponentials enlarge it.
  constexpr double precision = 3e-7, of_exponential = 2e-6;
  const double x = std::abs(number);
  for (const double size : {x, 1 / x, x * x, 1 / (x * x)})
    if (is_multiple_of_size(size, precision)) return true;
  for (const double power : {std::exp(x), std::exp2(x), std::pow(10.0, x)})
    if (std::abs(power / nominal_size - 1) <= of_exponential) return true;
  return false;
}

bool is_made_of_size(const Shape& shape) {
  for (const int64_t size : shape)
    if (is_made_of_size(size)) return true;
  return false;
}

bool is_made_of_size(const AttributeValue& value) {
  return std::visit(
      []<class T>(const T& v) {
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
          return is_made_of_size(v);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          return is_made_of_size(Shape(v));
        else
          return false;
      },
      value);
}

/// What of a node was made of a nominal size.
std::optional<std::string> embedded(const Node& node) {
  if (node.op().feed()) return std::nullopt;
  for (const auto& [name, value] : node.op().attributes())
    if (is_made_of_size(value)) return fmt::format("its '{}'", name);
  if (!node.is_leaf()) return std::nullopt;
  const Output& output = node.outputs[0];
  if (is_made_of_size(output.spec.shape))
    return fmt::format("its shape [{}]", fmt::join(output.spec.shape.begin(), output.spec.shape.end(), ", "));
  if (!is_constant(node.op()) || output.spec.shape.elements() != 1 || output.spec.dtype == DType::boolean)
    return std::nullopt;
  const double number = output.value.to(cpu()).item();
  const bool made = is_real(output.spec.dtype)
                        ? is_made_of_size(number)
                        : std::abs(number) < 0x1p63 &&
                              is_made_of_size(static_cast<int64_t>(number));  // 2^63 - 1 is rounded up
  return made ? std::optional(fmt::format("the number {}", number)) : std::nullopt;
}

}  // namespace

void check_open_sizes(std::span<Node* const> tree, std::string_view what) {
  const bool open = std::ranges::any_of(tree, [](const Node* node) {
    const auto* feed = node->op().feed();
    return feed && !(*feed)->open_axes().empty();
  });
  if (!open) return;
  for (const Node* node : tree)
    if (const auto made = embedded(*node))
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
