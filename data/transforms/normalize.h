// Elements of images as what networks take.
#pragma once
#include <source_location>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data::transforms {

/// Integers from 0 to 255, uint8 or int32, as float32 from 0 to 1. Throws TypeError for reals and others.
class ToFloat {
 public:
  explicit ToFloat(std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image) const;

 private:
  CallSite made_;
};

/// (x - mean) / std, with a number for each channel, of float32 images. Throws TypeError for others (ToFloat
/// comes before it), ShapeError for images of other channels, and DataError unless there are as many finite
/// means as deviations, above 0.
class Normalize {
 public:
  Normalize(std::vector<float> mean, std::vector<float> std,
            std::source_location where = std::source_location::current());
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<float> mean_, std_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
