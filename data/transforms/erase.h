// Images with a part missing.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/transforms/resize.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data::transforms {

/// These pixels, as far as the image has them, become `value`. Throws ShapeError for
/// negative sizes, and beyond 2^31.
Tensor erase(const Tensor& image, int64_t top, int64_t left, ImageSize size, double value = 0,
             std::source_location where = std::source_location::current());

/// A square about a random pixel becomes `value`; what lies outside the image is cut off. DeVries and Taylor,
/// Improved regularization of convolutional neural networks with cutout, 2017. Throws DataError for a side
/// not from 1 to 2^31.
class Cutout {
 public:
  explicit Cutout(int64_t side, double value = 0,
                  std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  int64_t side_;
  double value_;
  CallSite made_;
};

struct RandomErasingOptions {
  double probability = 0.5;
  Range scale = {0.02, 0.33};  ///< of the part's area, in areas of the image
  Range ratio = {0.3, 3.3};    ///< of its width to its height
  double value = 0;
};

/// A part of random area and shape becomes `value`; none where ten draws do not fit into the image. Zhong et
/// al., Random erasing data augmentation, 2017. Throws DataError for options that make no sense.
class RandomErasing {
 public:
  explicit RandomErasing(const RandomErasingOptions& options = {},
                         std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image, Draws& draws) const;

 private:
  RandomErasingOptions options_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
