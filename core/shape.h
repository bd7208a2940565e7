// Shapes, axes and layouts. Sizes are 64 bits wide and checked for overflow.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/small_vector.h"

namespace espalier {

using Dims = SmallVector<int64_t, 4>;

/// The size that stands for an open axis (-1) in the shapes of a tree, until a batch comes: 64 times a prime,
/// so that numbers computed from it can be told from others, and that it can be halved, as strides and
/// pooling do, and doubled again.
inline constexpr int64_t nominal_size = 64 * 271;
/// From here on, texts show the nominal size and its multiples as -1. Feeds with open axes call it.
void show_open_axes();
/// A size as texts show it.
std::string size_text(int64_t size);

/// Which axes of a shape are open, and the line of the Variable that has it: their sizes in the tree are
/// nominal, and must not be read as numbers.
struct OpenAxesOf;

/// A size or a position of any integral type, as an element of a list: `{rows.size(), 3}`.
class ListedInteger {
 public:
  template <std::integral T>
  constexpr ListedInteger(T number) : number_(static_cast<int64_t>(number)) {}
  constexpr operator int64_t() const { return number_; }

 private:
  int64_t number_;
};

/// The sizes of a tensor's axes; rank 0 is a scalar. Where a call says so, one size may be -1: "what is
/// left".
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<ListedInteger> sizes) : dims_(sizes.begin(), sizes.end()) {}
  Shape(const std::vector<int64_t>& sizes) : dims_(sizes.begin(), sizes.end()) {}
  explicit Shape(Dims dims) : dims_(std::move(dims)) {}

  size_t rank() const { return dims_.size(); }
  /// The size of an axis. Negative axes count from the end. Throws ShapeError when there is no such axis, and
  /// UnsupportedError for an open axis (-1) of a Variable: no batch has told its size, so a number made of it
  /// would be that of no batch.
  int64_t operator[](int64_t axis) const {
    const auto at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank()) : axis);
    if (at >= rank()) refuse(axis);
    if (open_) check_known(at);
    return dims_[at];
  }
  const int64_t* begin() const { return dims_.begin(); }
  const int64_t* end() const { return dims_.end(); }
  const Dims& dims() const { return dims_; }
  Dims& dims() {
    open_ = nullptr;
    return dims_;
  }
  /// The same shape, of which the sizes of these axes cannot be read.
  Shape with_open_axes(const OpenAxesOf* open) const {
    Shape shape(*this);
    shape.open_ = open;
    return shape;
  }

  /// The product of all sizes. Throws ShapeError when it does not fit 64 bits or a size is negative, and
  /// UnsupportedError as operator[] does.
  int64_t elements() const {
    if (open_) check_known(rank());
    int64_t count = 1;
    bool plain = true;
    for (const int64_t size : dims_) plain &= size > 0 && !__builtin_mul_overflow(count, size, &count);
    return plain ? count : product();
  }

  /// "[2, 3]"; open axes are -1.
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  [[noreturn]] void refuse(int64_t axis) const;
  /// Throws if the axis is open; of all axes if there is no such one.
  void check_known(size_t axis) const;
  int64_t product() const;
  Dims dims_;
  const OpenAxesOf* open_ = nullptr;  // lives for ever
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// The shape two operands have together, by NumPy's rules. Throws ShapeError naming `op` and both shapes.
Shape broadcast(const Shape& a, const Shape& b, std::string_view op);

/// `shape` with its -1, if any, filled in so that it has `elements`. Throws ShapeError.
Shape resolve(const Shape& shape, int64_t elements, std::string_view op);

/// `axis` counted from the front, for a tensor of that rank. Throws ShapeError naming `op`.
size_t resolve_axis(int64_t axis, size_t rank, std::string_view op);

/// One axis, or a list of them; empty means all.
class Axes {
 public:
  Axes() = default;
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Axes(T axis)
      : list_{static_cast<int64_t>(axis)} {}
  Axes(std::initializer_list<int64_t> axes) : list_(axes) {}
  Axes(const std::vector<int64_t>& axes) : list_(axes.begin(), axes.end()) {}
  explicit Axes(Dims axes) : list_(std::move(axes)) {}

  const Dims& list() const { return list_; }
  /// One flag for each of `rank` axes. Throws ShapeError on an axis that does not exist or comes twice.
  SmallVector<bool, 8> mask(size_t rank, std::string_view op) const;

 private:
  Dims list_;
};

/// Where the elements of a tensor lie in its buffer, in units of elements.
struct Layout {
  Shape shape;
  Dims strides;
  int64_t offset = 0;

  Layout() = default;
  /// Row-major, without gaps.
  explicit Layout(Shape shape);
  bool contiguous() const;
};

/// The layout of the same elements under another shape, if strides can express it.
bool reshape_layout(const Layout& from, const Shape& to, Layout& result);
/// `from` repeated to `to` by strides of zero; `from.shape` must be broadcastable to it.
Layout broadcast_layout(const Layout& from, const Shape& to);
/// The same elements in the same order with as few axes as possible: those of size 1 go, and neighbours that
/// can be walked as one are joined.
Layout collapsed(const Layout& layout);

}  // namespace espalier
