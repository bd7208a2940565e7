// Parts of images, mirrored and turned images.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/transforms/resize.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data::transforms {

/// Rows `top` to `top + size.height` (excluded) and columns likewise. Throws ShapeError for parts that the
/// image does not have.
Tensor crop(const Tensor& image, int64_t top, int64_t left, ImageSize size,
            std::source_location where = std::source_location::current());
/// `border` pixels more on each side, of the value `fill`. Throws ShapeError for a border not from 0 to 2^20.
Tensor pad(const Tensor& image, int64_t border, double fill = 0,
           std::source_location where = std::source_location::current());
/// Left and right change places.
Tensor flip_horizontally(const Tensor& image, std::source_location where = std::source_location::current());
/// Top and bottom change places.
Tensor flip_vertically(const Tensor& image, std::source_location where = std::source_location::current());

/// The value between pixels.
enum class Sampling {
  nearest,
  bilinear,
};

struct RotationOptions {
  Sampling sampling = Sampling::bilinear;
  double fill = 0;  ///< of what lies outside the image
};

/// Turned counter-clockwise about its centre, within its size.
Tensor rotate(const Tensor& image, double degrees, const RotationOptions& options = {},
              std::source_location where = std::source_location::current());

/// The middle of an image. Of two rows (columns) in which it could begin, it takes the even one, as
/// torchvision does. Throws ShapeError for a size not from 1 to 2^20, and for a smaller image.
class CenterCrop {
 public:
  explicit CenterCrop(ImageSize size, std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image) const;

 private:
  ImageSize size_;
  CallSite made_;
};

struct RandomCropOptions {
  int64_t padding = 0;  ///< pixels that are added on each side first
  double fill = 0;      ///< their value
};

/// A part of that size from anywhere in the image. Throws ShapeError for an image that is smaller even with
/// its padding, for a size not from 1 to 2^20, and for a padding not from 0 to 2^20.
class RandomCrop {
 public:
  explicit RandomCrop(ImageSize size, const RandomCropOptions& options = {},
                      std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  ImageSize size_;
  RandomCropOptions options_;
  CallSite made_;
};

/// Mirrored with that probability. The constructors throw DataError for what is none.
class RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double probability = 0.5,
                                std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  double probability_;
  CallSite made_;
};
class RandomVerticalFlip {
 public:
  explicit RandomVerticalFlip(double probability = 0.5,
                              std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  double probability_;
  CallSite made_;
};

/// Turned by an angle between -degrees and degrees. Throws DataError unless these are finite.
class RandomRotation {
 public:
  explicit RandomRotation(double degrees, const RotationOptions& options = {},
                          std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  double degrees_;
  RotationOptions options_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
