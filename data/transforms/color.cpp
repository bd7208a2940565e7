#include "espalier/data/transforms/color.h"

#include <array>

#include "espalier/data/transforms/pixels.h"

namespace espalier::data::transforms {

namespace {

Image colors_of(const Tensor& image, std::string_view call) {
  Image checked = checked_image(image, call);
  if (checked.channels != 1 && checked.channels != 3)
    throw ShapeError(
        fmt::format("{}: {} has {} channels, not 1 or 3", call, image.shape().str(), checked.channels));
  return checked;
}

void check_factor(double factor, std::string_view call) {
  if (!(factor >= 0) || !std::isfinite(factor))
    throw DataError(fmt::format("{}: the factor is {}, not a finite number of at least 0", call, factor));
}

void check_channels(int64_t channels, std::string_view call) {
  if (channels != 1 && channels != 3)
    throw DataError(fmt::format("{}: {} channels, not 1 or 3", call, channels));
}

/// ITU-R BT.601.
float gray_of(float red, float green, float blue) { return 0.299f * red + 0.587f * green + 0.114f * blue; }

template <class T>
float gray_at(const T* image, const Image& sizes, int64_t pixel) {
  const auto at = [&](int64_t channel) {
    return static_cast<float>(image[channel * sizes.pixels() + pixel]);
  };
  return sizes.channels == 1 ? at(0) : gray_of(at(0), at(1), at(2));
}

/// Replaces each pixel's red, green and blue, from 0 to 1 for all element types.
template <class F>
Tensor of_pixels(const Image& image, const F& f) {
  Tensor result(image.tensor.shape(), image.tensor.dtype());
  on_elements(image, [&]<class T>(TypeTag<T>) {
    const T* from = image.tensor.data<T>();
    T* to = result.data<T>();
    const int64_t count = image.pixels();
    for (int64_t i = 0; i < count; ++i) {
      std::array<float, 3> rgb;
      for (int64_t k = 0; k < 3; ++k)
        rgb[static_cast<size_t>(k)] = static_cast<float>(from[k * count + i]) / full_scale<T>;
      rgb = f(rgb);
      for (int64_t k = 0; k < 3; ++k)
        to[k * count + i] = color_of<T>(rgb[static_cast<size_t>(k)] * full_scale<T>);
    }
  });
  return result;
}

/// Smith, Color gamut transform pairs, 1978: the hue in turns, the saturation and the value of each color.
std::array<float, 3> hsv_of(const std::array<float, 3>& rgb) {
  const auto [r, g, b] = rgb;
  const float most = std::max({r, g, b}), range = most - std::min({r, g, b});
  if (range == 0) return {0, 0, most};
  const float sector = most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range;
  return {sector / 6 - std::floor(sector / 6), range / most, most};
}

std::array<float, 3> rgb_of(const std::array<float, 3>& hsv) {
  const float h = hsv[0], s = hsv[1], v = hsv[2];
  const auto channel = [&](float n) {
    const float k = std::fmod(n + h * 6, 6.0f);
    return v - v * s * std::max(0.0f, std::min({k, 4 - k, 1.0f}));
  };
  return {channel(5), channel(3), channel(1)};
}

}  // namespace

Tensor adjust_brightness(const Tensor& image, double factor, std::source_location where) {
  return located(where, [&] {
    const Image checked = colors_of(image, "adjust_brightness");
    check_factor(factor, "adjust_brightness");
    Tensor result(image.shape(), image.dtype());
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      const auto from = checked.tensor.span<T>();
      std::ranges::transform(from, result.span<T>().begin(), [&](T element) {
        return color_of<T>(static_cast<float>(element) * static_cast<float>(factor));
      });
    });
    return result;
  });
}

Tensor adjust_contrast(const Tensor& image, double factor, std::source_location where) {
  return located(where, [&] {
    const Image checked = colors_of(image, "adjust_contrast");
    check_factor(factor, "adjust_contrast");
    Tensor result(image.shape(), image.dtype());
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      const auto from = checked.tensor.span<T>();
      double sum = 0;
      for (int64_t i = 0; i < checked.pixels(); ++i) sum += gray_at(from.data(), checked, i);
      const auto mean = static_cast<float>(sum / static_cast<double>(checked.pixels()));
      std::ranges::transform(from, result.span<T>().begin(), [&](T element) {
        return color_of<T>(mean + static_cast<float>(factor) * (static_cast<float>(element) - mean));
      });
    });
    return result;
  });
}

Tensor adjust_saturation(const Tensor& image, double factor, std::source_location where) {
  return located(where, [&] {
    const Image checked = colors_of(image, "adjust_saturation");
    check_factor(factor, "adjust_saturation");
    if (checked.channels == 1) return image.clone();
    return of_pixels(checked, [&](std::array<float, 3> rgb) {
      const float gray = gray_of(rgb[0], rgb[1], rgb[2]);
      for (float& color : rgb) color = gray + static_cast<float>(factor) * (color - gray);
      return rgb;
    });
  });
}

Tensor adjust_hue(const Tensor& image, double turns, std::source_location where) {
  return located(where, [&] {
    const Image checked = colors_of(image, "adjust_hue");
    if (!(std::abs(turns) <= 0.5))
      throw DataError(fmt::format("adjust_hue: {} turns are not from -0.5 to 0.5", turns));
    if (checked.channels == 1) return image.clone();
    return of_pixels(checked, [&](const std::array<float, 3>& rgb) {
      std::array<float, 3> hsv = hsv_of(rgb);
      hsv[0] += static_cast<float>(turns);
      hsv[0] -= std::floor(hsv[0]);
      return rgb_of(hsv);
    });
  });
}

Tensor grayscale(const Tensor& image, int64_t channels, std::source_location where) {
  return located(where, [&] {
    const Image checked = colors_of(image, "grayscale");
    check_channels(channels, "grayscale");
    Tensor result({channels, checked.height, checked.width}, image.dtype());
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      const T* from = checked.tensor.data<T>();
      T* to = result.data<T>();
      for (int64_t i = 0; i < checked.pixels(); ++i) {
        const T gray = element_of<T>(gray_at(from, checked, i));
        for (int64_t k = 0; k < channels; ++k) to[k * checked.pixels() + i] = gray;
      }
    });
    return result;
  });
}

Grayscale::Grayscale(int64_t channels, std::source_location where)
    : channels_(channels), made_(where, "Grayscale") {
  located(made_, [&] { check_channels(channels, "Grayscale"); });
}

Tensor Grayscale::operator()(const Tensor& image) const {
  return run_transform(made_, [&] { return grayscale(image, channels_); });
}

ColorJitter::ColorJitter(const ColorJitterOptions& options, std::source_location where)
    : options_(options), made_(where, "ColorJitter") {
  located(made_, [&] {
    for (const double option : {options.brightness, options.contrast, options.saturation, options.hue})
      check_factor(option, "ColorJitter");
    if (options.hue > 0.5) throw DataError(fmt::format("ColorJitter: the hue {} is above 0.5", options.hue));
  });
}

Tensor ColorJitter::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const auto factor = [&](double spread) { return draws.uniform(std::max(0.0, 1 - spread), 1 + spread); };
    const double brightness = factor(options_.brightness), contrast = factor(options_.contrast),
                 saturation = factor(options_.saturation), hue = draws.uniform(-options_.hue, options_.hue);
    std::array<int, 4> order{0, 1, 2, 3};
    for (int64_t last = 3; last > 0; --last)  // Fisher and Yates
      std::swap(order[static_cast<size_t>(last)], order[static_cast<size_t>(draws.integer(0, last))]);
    Tensor result = colors_of(image, "ColorJitter").tensor;
    for (const int step : order) {
      if (step == 0 && options_.brightness > 0) result = adjust_brightness(result, brightness);
      if (step == 1 && options_.contrast > 0) result = adjust_contrast(result, contrast);
      if (step == 2 && options_.saturation > 0) result = adjust_saturation(result, saturation);
      if (step == 3 && options_.hue > 0) result = adjust_hue(result, hue);
    }
    return result;
  });
}

}  // namespace espalier::data::transforms
