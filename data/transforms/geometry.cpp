#include "espalier/data/transforms/geometry.h"

#include <numbers>

#include "espalier/data/transforms/checks.h"
#include "espalier/data/transforms/pixels.h"

namespace espalier::data::transforms {

namespace {

/// Writes element `source(y, x)` of each channel to (y, x), or `fill` where that is negative.
template <class Source>
Tensor rearranged(const Image& image, ImageSize size, double fill, const Source& source) {
  Tensor result({image.channels, size.height, size.width}, image.tensor.dtype());
  on_elements(image, [&]<class T>(TypeTag<T>) {
    const T* from = image.tensor.data<T>();
    T* to = result.data<T>();
    for (int64_t channel = 0; channel < image.channels; ++channel, from += image.pixels())
      for (int64_t y = 0; y < size.height; ++y)
        for (int64_t x = 0; x < size.width; ++x) {
          const int64_t at = source(y, x);
          *to++ = at < 0 ? element_of<T>(static_cast<float>(fill)) : from[at];
        }
  });
  return result;
}

Tensor padded_by(const Image& image, int64_t border, double fill) {
  const ImageSize size{image.height + 2 * border, image.width + 2 * border};
  return rearranged(image, size, fill, [&](int64_t y, int64_t x) -> int64_t {
    const int64_t row = y - border, column = x - border;
    const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
    return inside ? row * image.width + column : -1;
  });
}

/// One channel at a point between the centres of its pixels, which have whole coordinates.
template <class T>
float sample(const T* plane, int64_t height, int64_t width, double y, double x, Sampling sampling,
             float fill) {
  const auto at = [&](double row, double column) -> float {
    if (!(row >= 0 && column >= 0 && row < static_cast<double>(height) &&
          column < static_cast<double>(width)))
      return fill;
    return static_cast<float>(plane[static_cast<int64_t>(row) * width + static_cast<int64_t>(column)]);
  };
  if (sampling == Sampling::nearest) return at(std::nearbyint(y), std::nearbyint(x));
  const double row = std::floor(y), column = std::floor(x);
  const auto down = static_cast<float>(y - row), right = static_cast<float>(x - column);
  return (1 - down) * ((1 - right) * at(row, column) + right * at(row, column + 1)) +
         down * ((1 - right) * at(row + 1, column) + right * at(row + 1, column + 1));
}

}  // namespace

Tensor crop(const Tensor& image, int64_t top, int64_t left, ImageSize size, std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "crop");
    const bool inside = top >= 0 && left >= 0 && size.height > 0 && size.width > 0 &&
                        size.height <= checked.height - top && size.width <= checked.width - left;
    if (!inside)
      throw ShapeError(fmt::format("crop: {} has no part of {} x {} (height x width) from row {}, column {}",
                                   image.shape().str(), size.height, size.width, top, left));
    return rearranged(checked, size, 0,
                      [&](int64_t y, int64_t x) { return (top + y) * checked.width + left + x; });
  });
}

Tensor pad(const Tensor& image, int64_t border, double fill, std::source_location where) {
  return located(where, [&] {
    check_border(border, "pad");
    const Image checked = checked_image(image, "pad");
    check_fill(checked, fill, "pad");
    return padded_by(checked, border, fill);
  });
}

Tensor flip_horizontally(const Tensor& image, std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "flip_horizontally");
    return rearranged(checked, {checked.height, checked.width}, 0,
                      [&](int64_t y, int64_t x) { return (y + 1) * checked.width - 1 - x; });
  });
}

Tensor flip_vertically(const Tensor& image, std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "flip_vertically");
    return rearranged(checked, {checked.height, checked.width}, 0,
                      [&](int64_t y, int64_t x) { return (checked.height - 1 - y) * checked.width + x; });
  });
}

Tensor rotate(const Tensor& image, double degrees, const RotationOptions& options,
              std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "rotate");
    check_fill(checked, options.fill, "rotate");
    if (!std::isfinite(degrees)) throw DataError(fmt::format("rotate: {} degrees", degrees));
    const double angle = degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
    const double middle_y = static_cast<double>(checked.height - 1) / 2,
                 middle_x = static_cast<double>(checked.width - 1) / 2;
    Tensor result(image.shape(), image.dtype());
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      const T* from = checked.tensor.data<T>();
      T* to = result.data<T>();
      for (int64_t channel = 0; channel < checked.channels; ++channel, from += checked.pixels())
        for (int64_t y = 0; y < checked.height; ++y)
          for (int64_t x = 0; x < checked.width; ++x) {
            const double dx = static_cast<double>(x) - middle_x, dy = static_cast<double>(y) - middle_y;
            *to++ = element_of<T>(sample(from, checked.height, checked.width, middle_y + s * dx + c * dy,
                                         middle_x + c * dx - s * dy, options.sampling,
                                         static_cast<float>(options.fill)));
          }
    });
    return result;
  });
}

CenterCrop::CenterCrop(ImageSize size, std::source_location where) : size_(size), made_(where, "CenterCrop") {
  located(made_, [&] { check_size(size, "CenterCrop"); });
}

Tensor CenterCrop::operator()(const Tensor& image) const {
  return run_transform(made_, [&] {
    const Image checked = checked_image(image, "CenterCrop");
    if (checked.height < size_.height || checked.width < size_.width)
      throw ShapeError(fmt::format("CenterCrop: {} is smaller than {} x {} (height x width)",
                                   image.shape().str(), size_.height, size_.width));
    const auto half = [](int64_t rest) {
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(rest) / 2));  // halves to even
    };
    return crop(image, half(checked.height - size_.height), half(checked.width - size_.width), size_);
  });
}

RandomCrop::RandomCrop(ImageSize size, const RandomCropOptions& options, std::source_location where)
    : size_(size), options_(options), made_(where, "RandomCrop") {
  located(made_, [&] {
    check_size(size, "RandomCrop");
    check_border(options.padding, "RandomCrop");
  });
}

Tensor RandomCrop::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const Image checked = checked_image(image, "RandomCrop");
    const int64_t down = checked.height + 2 * options_.padding - size_.height,
                  right = checked.width + 2 * options_.padding - size_.width;
    if (down < 0 || right < 0)
      throw ShapeError(
          fmt::format("RandomCrop: {} with {} pixels of padding is smaller than {} x {} (height x width)",
                      image.shape().str(), options_.padding, size_.height, size_.width));
    const int64_t top = draws.integer(0, down), left = draws.integer(0, right);
    return crop(options_.padding == 0 ? image : pad(image, options_.padding, options_.fill), top, left,
                size_);
  });
}

RandomHorizontalFlip::RandomHorizontalFlip(double probability, std::source_location where)
    : probability_(probability), made_(where, "RandomHorizontalFlip") {
  located(made_, [&] { check_probability(probability, "RandomHorizontalFlip"); });
}

Tensor RandomHorizontalFlip::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    (void)checked_image(image, "RandomHorizontalFlip");
    return draws.chance(probability_) ? flip_horizontally(image) : image;
  });
}

RandomVerticalFlip::RandomVerticalFlip(double probability, std::source_location where)
    : probability_(probability), made_(where, "RandomVerticalFlip") {
  located(made_, [&] { check_probability(probability, "RandomVerticalFlip"); });
}

Tensor RandomVerticalFlip::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    (void)checked_image(image, "RandomVerticalFlip");
    return draws.chance(probability_) ? flip_vertically(image) : image;
  });
}

RandomRotation::RandomRotation(double degrees, const RotationOptions& options, std::source_location where)
    : degrees_(degrees), options_(options), made_(where, "RandomRotation") {
  located(made_, [&] {
    if (!std::isfinite(2 * degrees)) throw DataError(fmt::format("RandomRotation: {} degrees", degrees));
  });
}

Tensor RandomRotation::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const double most = std::abs(degrees_);
    return rotate(image, draws.uniform(-most, most), options_);
  });
}

}  // namespace espalier::data::transforms
