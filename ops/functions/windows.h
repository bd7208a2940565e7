// Windows that slide over axes, and elements moved between channels and places.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// All windows of `size` elements of an axis, `dilation` apart, which begin `step` apart: the axis has their
/// number, ⌊(n − dilation · (size − 1) − 1) / step⌋ + 1, and a new last axis their elements. A view.
/// PyTorch's Tensor.unfold. ShapeError if no window fits; Error for numbers below 1.
Variable sliding_windows(const Operand& x, int64_t axis, int64_t size, int64_t step = 1,
                         int64_t dilation = 1);

/// One number for all axes, or one for each.
class PerAxis {
 public:
  PerAxis(int64_t all) : list_{all} {}
  PerAxis(std::initializer_list<int64_t> each) : list_(each) {}
  PerAxis(const std::vector<int64_t>& each) : list_(each) {}
  size_t size() const { return list_.size(); }
  int64_t operator[](size_t axis) const { return list_[list_.size() == 1 ? 0 : axis]; }

 private:
  std::vector<int64_t> list_;
};
/// The same, or none.
class OptionalPerAxis : public std::optional<PerAxis> {
 public:
  using std::optional<PerAxis>::optional;
  OptionalPerAxis(std::initializer_list<int64_t> each) : std::optional<PerAxis>(each) {}
};
struct WindowOptions {
  PerAxis kernel;  ///< of a window; as many numbers as there are axes to slide over, unless these are two
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< zeros at both ends
  PerAxis dilation = 1;
};
/// The windows of x [batch, channels, sizes…], padded, as columns: [batch, channels · kernel elements, number
/// of windows], all in row-major order. PyTorch's Unfold (im2col), for any number of axes. ShapeError for
/// another rank and if no window fits; Error for other numbers.
Variable unfold(const Operand& x, const WindowOptions& options);
/// The transpose: columns [batch, channels · kernel elements, number of windows] added up in [batch,
/// channels, sizes…]. PyTorch's Fold (col2im). ShapeError unless `sizes` have as many windows; Error for
/// other numbers.
Variable fold(const Operand& columns, const Shape& sizes, const WindowOptions& options);

/// [..., channels · factor², height, width] as [..., channels, height · factor, width · factor]. Shi et al.,
/// Real-time single image and video super-resolution using an efficient sub-pixel convolutional neural
/// network, 2016. ShapeError unless the channels can be divided.
Variable pixel_shuffle(const Operand& x, int64_t factor);
/// The reverse of pixel_shuffle. ShapeError unless height and width can be divided.
Variable pixel_unshuffle(const Operand& x, int64_t factor);
/// Lets channels, axis 1, take turns between `groups` groups of neighbours. Zhang et al., ShuffleNet, 2018.
/// ShapeError unless the channels can be divided.
Variable channel_shuffle(const Operand& x, int64_t groups);

}  // namespace espalier
