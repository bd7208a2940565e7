// What stands between the brackets of x[…]: positions, ranges, indices.
#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier {

/// In a range: as far as the axis goes.
inline constexpr int64_t end = std::numeric_limits<int64_t>::max();

/// Elements begin, begin + step, … before `end` of an axis. Negative positions count from the end.
struct Range {
  int64_t begin = 0, end = espalier::end, step = 1;
};
/// `range()` is the whole axis, `range(1, end)` all but its first element, `range(0, end, 2)` every second,
/// `range(-1, end, -1)` the axis backwards.
constexpr Range range(int64_t begin = 0, int64_t stop = end, int64_t step = 1) { return {begin, stop, step}; }

struct Ellipsis {};
/// As many whole axes as are not named.
inline constexpr Ellipsis ellipsis;
struct NewAxis {};
/// An axis of size 1 that is not in x.
inline constexpr NewAxis new_axis;

/// One of the entries of x[…]. Lasts for the length of one call.
class Index {
 public:
  using Where = std::source_location;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // GCC 12 compares scoped enumerators with names of the namespace
  enum class Kind : uint8_t { range, position, ellipsis, new_axis, tensor };
#pragma GCC diagnostic pop

  /// A whole axis: x[{0, {}, 1}].
  Index(Where where = Where::current()) : where_(where) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Index(T position, Where where = Where::current())
      : kind_(Kind::position), range_{static_cast<int64_t>(position)}, where_(where) {}
  Index(const Range& range, Where where = Where::current()) : range_(range), where_(where) {}
  Index(Ellipsis, Where where = Where::current()) : kind_(Kind::ellipsis), where_(where) {}
  /// `all`: a whole axis. Throws Error for another function.
  Index(Variable (*function)(const Operand&, const Axes&, bool), Where where = Where::current());
  Index(NewAxis, Where where = Where::current()) : kind_(Kind::new_axis), where_(where) {}
  /// Integers, or a mask of bool.
  Index(const Variable& tensor, Where where = Where::current())
      : kind_(Kind::tensor), tensor_(tensor), where_(where) {}
  Index(const Tensor& tensor, Where where = Where::current())
      : kind_(Kind::tensor), tensor_(tensor, where), where_(where) {}

  Kind kind() const { return kind_; }
  const Range& range() const { return range_; }
  int64_t position() const { return range_.begin; }
  const Variable& tensor() const { return tensor_; }
  const Where& where() const { return where_; }

 private:
  Kind kind_ = Kind::range;
  Range range_;
  Variable tensor_;
  Where where_;
};

}  // namespace espalier
