// Images in other sizes.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data::transforms {

struct ImageSize {
  int64_t height, width;
  ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT: a number is a square
  ImageSize(int64_t rows, int64_t columns) : height(rows), width(columns) {}
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

struct ResizeOptions {
  /// Where an image shrinks, each pixel is a mean over all pixels that become it, weighted by a triangle;
  /// otherwise it is interpolated between its neighbours alone.
  bool antialias = true;
};

/// Interpolated linearly in both directions; pixels are areas (`align_corners = false`). Throws ShapeError
/// for sizes that are not from 1 to 2^20.
Tensor resize(const Tensor& image, ImageSize size, const ResizeOptions& options = {},
              std::source_location where = std::source_location::current());

/// To a height and a width, or so that the shorter side has that length and the ratio of sides stays. Throws
/// ShapeError for sizes that are not from 1 to 2^20.
class Resize {
 public:
  explicit Resize(int64_t shorter, const ResizeOptions& options = {},
                  std::source_location where = std::source_location::current());
  explicit Resize(ImageSize size, const ResizeOptions& options = {},
                  std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image) const;

 private:
  ImageSize size_;
  ResizeOptions options_;
  bool keeps_ratio_ = false;
  CallSite made_;
};

/// A range from which a number is drawn.
struct Range {
  double low, high;
};

struct RandomResizedCropOptions {
  Range scale = {0.08, 1};           ///< of the part's area, in areas of the image
  Range ratio = {3.0 / 4, 4.0 / 3};  ///< of the part's width to its height; its logarithm is uniform
  bool antialias = true;             ///< as in ResizeOptions
};

/// A part of random area and shape, resized. Where ten draws do not fit into the image, the largest part in
/// its middle whose ratio is allowed. Szegedy et al., Going deeper with convolutions, 2015. Throws DataError
/// for ranges that are not positive or end before they begin, and ShapeError for sizes as Resize does.
class RandomResizedCrop {
 public:
  explicit RandomResizedCrop(ImageSize size, const RandomResizedCropOptions& options = {},
                             std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  ImageSize size_;
  RandomResizedCropOptions options_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
