// The windows that pooling slides over the last axes of a tensor.
#pragma once
#include <cstdint>
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/scalar.h"

namespace espalier {

inline constexpr size_t most_pooled_axes = 3;

/// The windows of one axis: equal ones that begin `stride` apart, or, with a kernel of 0, `count` ones that
/// divide the axis as evenly as whole elements can.
struct PoolAxis {
  int64_t size = 1, count = 1;
  int64_t kernel = 1, stride = 1, before = 0, dilation = 1;

  /// The first element of a window, which may lie before the axis.
  ESPALIER_HD int64_t begin(int64_t window) const {
    return kernel == 0 ? window * size / count : window * stride - before;
  }
  /// Elements of a window, with those that lie outside of the axis.
  ESPALIER_HD int64_t length(int64_t window) const {
    return kernel == 0 ? ((window + 1) * size + count - 1) / count - begin(window) : kernel;
  }
};

/// Missing axes come first, with one window of one element.
struct PoolAxes {
  PoolAxis at[most_pooled_axes];

  ESPALIER_HD int64_t elements() const { return at[0].size * at[1].size * at[2].size; }  ///< of a plane
  ESPALIER_HD int64_t windows() const { return at[0].count * at[1].count * at[2].count; }
};

/// The settings of pooling. Lists have a number for each of the pooled axes: the last ones.
struct PoolForm {
  Dims kernel, stride, before, after, dilation;
  bool ceil = false;  ///< a last window that begins within the axis or before it may end beyond the padding
  Dims parts = {};    ///< instead of the others: the number of windows that divide an axis
  bool channels_last = false;  ///< the pooled axes are those before the last one, [batch, sizes…, channels]

  Attributes attributes() const;
  static PoolForm read(AttributeReader& reader);
  /// That of an op with these attributes.
  static PoolForm of(const Op& op);

  size_t axes() const { return parts.empty() ? kernel.size() : parts.size(); }
  /// The first axis of x that is pooled.
  size_t first_axis(const Shape& x) const { return x.rank() - axes() - (channels_last ? 1 : 0); }
  /// The windows of x. Throws ShapeError naming `op` and the shape if none fits.
  PoolAxes windows(const Shape& x, std::string_view op) const;
  /// The shape of x with the number of windows of each axis. Throws as `windows`.
  Shape output(const Shape& x, std::string_view op) const;
};

/// The elements of the axes before those that are pooled.
inline int64_t pooled_planes(const Shape& x, const PoolForm& form) {
  int64_t planes = 1;
  for (size_t i = 0; i < form.first_axis(x); ++i) planes *= x.dims()[i];
  return planes;
}

}  // namespace espalier
