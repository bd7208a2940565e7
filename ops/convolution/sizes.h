// What a convolution slides over what.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/op_registry.h"

namespace espalier {

inline constexpr size_t most_convolution_axes = 3;

/// The sizes of a convolution of x [batch, groups · in_channels, in…] with kernels [groups · out_channels,
/// in_channels, kernel…] to y [batch, groups · out_channels, out…]. Missing axes come first, with size 1.
struct ConvolutionSizes {
  using PerAxis3 = std::array<int64_t, most_convolution_axes>;
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  ///< of a group
  PerAxis3 in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1};
  PerAxis3 stride{1, 1, 1}, dilation{1, 1, 1}, before{0, 0, 0};

  static int64_t product(const PerAxis3& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t in_places() const { return product(in); }
  int64_t out_places() const { return product(out); }
  int64_t kernel_places() const { return product(kernel); }
  /// Multiplications and additions of a convolution, and as many of each of its gradients.
  double flops() const {
    return 2.0 * static_cast<double>(batch * groups * out_channels * out_places()) *
           static_cast<double>(in_channels * kernel_places());
  }
};

/// The settings of a convolution, and of its gradients. Lists have a number for each axis.
struct ConvolutionForm {
  Dims stride, dilation;
  Dims before, after;  ///< zeros at the ends of an axis of x
  int64_t groups = 1;
  bool channels_last = false;  ///< x and y are [batch, sizes…, channels]; kernels stay as they are

  Attributes attributes() const;
  static ConvolutionForm read(AttributeReader& reader);
  /// That of an op with these attributes.
  static ConvolutionForm of(const Op& op);

  size_t axes() const { return stride.size(); }
  /// The first and the last element of x that a kernel of that size reads, and those between.
  int64_t span(size_t axis, int64_t kernel) const;
  /// Positions of a kernel of that size on an axis of x; 0 if it does not fit.
  int64_t count(size_t axis, int64_t size, int64_t kernel) const;
  /// The smallest size of x on which a kernel of that size has `count` positions.
  int64_t size_for(size_t axis, int64_t count, int64_t kernel) const;
  /// The shape of y. Throws ShapeError naming `op` and both shapes unless x and the kernels fit, and
  /// UnsupportedError for more axes or elements than the kernels can index.
  Shape output(const Shape& x, const Shape& kernels, std::string_view op) const;
  /// Sizes or strides of x or y as [batch, channels, …], and sizes in that order as those of x or y.
  Dims channels_second(const Dims& dims) const;
  Shape in_own_order(const Shape& shape) const;
  /// Of shapes that fit.
  ConvolutionSizes sizes(const Shape& x, const Shape& kernels, const Shape& y) const;
  /// Throws UnsupportedError if the libraries cannot index them, which `output` leaves to kernels where axes
  /// may be open.
  ConvolutionSizes checked_sizes(const Shape& x, const Shape& kernels, const Shape& y) const;
};

}  // namespace espalier
