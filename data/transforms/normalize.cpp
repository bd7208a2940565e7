#include "espalier/data/transforms/normalize.h"

#include "espalier/data/transforms/pixels.h"

namespace espalier::data::transforms {

ToFloat::ToFloat(std::source_location where) : made_(where, "ToFloat") {}

Tensor ToFloat::operator()(const Tensor& image) const {
  return run_transform(made_, [&] {
    if (!image.defined()) throw TypeError("ToFloat: the image is undefined");
    if (image.dtype() != DType::uint8 && image.dtype() != DType::int32)
      throw TypeError(fmt::format("ToFloat: the image is {}, not uint8 or int32", name(image.dtype())));
    Tensor result = image.to(cpu()).to(float32).contiguous_copy();
    for (float& element : result.span<float>()) element /= 255;
    return result;
  });
}

Normalize::Normalize(std::vector<float> mean, std::vector<float> std, std::source_location where)
    : mean_(std::move(mean)), std_(std::move(std)), made_(where, "Normalize") {
  located(made_, [&] {
    if (mean_.empty() || mean_.size() != std_.size())
      throw DataError(fmt::format("Normalize: {} means and {} deviations", mean_.size(), std_.size()));
    for (const float one : mean_)
      if (!std::isfinite(one)) throw DataError(fmt::format("Normalize: a mean is {}", one));
    for (const float deviation : std_)
      if (!(deviation > 0) || !std::isfinite(deviation))
        throw DataError(fmt::format("Normalize: a deviation is {}, not a finite number above 0", deviation));
  });
}

Tensor Normalize::operator()(const Tensor& image) const {
  return run_transform(made_, [&] {
    if (image.defined() && image.dtype() != DType::float32)
      throw TypeError(fmt::format("Normalize: the image is {}, not float32; {}", name(image.dtype()),
                                  is_real(image.dtype()) ? "cast it" : "put ToFloat before it"));
    const Image checked = checked_image(image, "Normalize");
    if (mean_.size() != static_cast<size_t>(checked.channels))
      throw ShapeError(fmt::format("Normalize: {} has not the {} channels of the means", image.shape().str(),
                                   mean_.size()));
    Tensor result(image.shape(), float32);
    const float* from = checked.tensor.data<float>();
    float* to = result.data<float>();
    for (size_t channel = 0; channel < mean_.size(); ++channel)
      for (int64_t i = 0; i < checked.pixels(); ++i) *to++ = (*from++ - mean_[channel]) / std_[channel];
    return result;
  });
}

}  // namespace espalier::data::transforms
