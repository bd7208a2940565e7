// Sizes in the integers of a file: which axis of which Variable a number is the size of.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "espalier/core/open_sizes.h"
#include "espalier/core/variable.h"

namespace espalier::onnx {

/// Whether the axis may have another size in a run: it is open, or the first one below a feed.
bool may_differ(const Variable& x, int64_t axis);

/// The size of an axis of a Variable, whatever it is in a run.
struct SizeOf {
  Variable variable;
  int64_t axis = 0;

  bool operator==(const SizeOf& other) const {
    return variable.node() == other.variable.node() && variable.output() == other.variable.output() &&
           axis == other.axis;
  }
};

/// A number of the file, times the sizes of axes.
struct Size {
  int64_t number = 1;
  std::vector<SizeOf> axes = {};
  /// It is made of sizes in another way: `axes` has one of them, an open one if there is, and `number` is the
  /// number of the tree.
  bool follows_else = false;
  /// The products that it is the sum of: `axes` has one axis made for that sum, unless it follows else.
  std::vector<Size> terms = {};

  /// The same number in each run.
  bool is_number() const { return axes.empty(); }
  /// A product of sizes, not made of them in another way.
  bool is_product() const { return !axes.empty() && !follows_else; }
  /// Whether a size that it is made of is open.
  bool is_open() const;
  /// The size of one axis and nothing else.
  bool is_axis() const { return is_product() && number == 1 && axes.size() == 1; }
};

/// The size of that axis: a number, unless it may differ.
Size size_of_axis(const Variable& x, int64_t axis);
/// The number in the tree.
int64_t value_of(const Size& size);
/// a · b, of which `value` is the number in the tree.
Size multiplied(const Size& a, const Size& b, int64_t value);
/// a + b, or a − b for a `sign` of -1, of which `value` is the number in the tree.
Size added(const Size& a, const Size& b, int64_t sign, int64_t value);
/// What is made of such sizes in another way, and is `value` in the tree.
Size made_of(int64_t value, const std::vector<Size>& sizes);
/// a / b, of which `value` is the number in the tree.
Size divided(const Size& a, const Size& b, int64_t value);

/// `x` in the shape of these sizes, of which one may be -1.
Variable reshape_to(const Variable& x, const std::vector<Size>& sizes);
/// A Variable of that shape, for what reads shapes alone.
Variable shaped_as(const std::vector<Size>& sizes);
/// The number as a scalar of int64, whatever it is in a run. Not of what is made in another way than sums.
Variable number_of(const Size& size);
std::vector<Variable> numbers_of(const std::vector<Size>& sizes);
/// begin, begin + 1, … before end, int64. None where their number is no size, or is the same in each run.
std::optional<Variable> numbers_from(const Size& begin, const Size& end);

}  // namespace espalier::onnx
