// Colors of images.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data::transforms {

// Results are clamped to the range of colors: 0 to 255, or 0 to 1 for float32. Images have 1 channel or 3,
// red, green and blue (ShapeError); gray is 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). All throw DataError
// for factors that make no sense.

/// Every element times `factor`, at least 0.
Tensor adjust_brightness(const Tensor& image, double factor,
                         std::source_location where = std::source_location::current());
/// The distance of every element from the mean gray of the image times `factor`, at least 0.
Tensor adjust_contrast(const Tensor& image, double factor,
                       std::source_location where = std::source_location::current());
/// The distance of every element from the gray of its pixel times `factor`, at least 0: 0 is gray.
Tensor adjust_saturation(const Tensor& image, double factor,
                         std::source_location where = std::source_location::current());
/// The hue of every pixel (of hexagonal HSV) turned by `turns`, from -0.5 to 0.5 of the circle.
Tensor adjust_hue(const Tensor& image, double turns,
                  std::source_location where = std::source_location::current());
/// The gray of each pixel, in 1 channel or in 3 that are alike.
Tensor grayscale(const Tensor& image, int64_t channels = 1,
                 std::source_location where = std::source_location::current());

/// Gray images, of 1 channel or 3. Throws DataError for another number.
class Grayscale {
 public:
  explicit Grayscale(int64_t channels = 1, std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image) const;

 private:
  int64_t channels_;
  CallSite made_;
};

struct ColorJitterOptions {
  double brightness = 0;  ///< factors from 1 - brightness, but at least 0, to 1 + brightness
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< turns from -hue to hue, at most 0.5
};

/// Brightness, contrast, saturation and hue by random factors, in a random order. Throws DataError for
/// options that make no sense.
class ColorJitter {
 public:
  explicit ColorJitter(const ColorJitterOptions& options,
                       std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  ColorJitterOptions options_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
