#include "espalier/data/transforms/resize.h"

#include <vector>

#include "espalier/data/transforms/checks.h"
#include "espalier/data/transforms/geometry.h"
#include "espalier/data/transforms/pixels.h"
#include "espalier/data/transforms/random_box.h"

namespace espalier::data::transforms {

namespace {

/// The elements of an axis that one element of the other size is the weighted mean of.
struct Taps {
  int64_t begin = 0;
  std::vector<float> weights = {};
};

/// Triangles about the centre of each element: as wide as an element of the coarser axis with `antialias`,
/// else as one of the source.
std::vector<Taps> taps_of(int64_t from, int64_t to, bool antialias) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = antialias ? std::max(scale, 1.0) : 1.0;
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Taps& taps = all[static_cast<size_t>(i)];
    taps.begin = std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5));
    const int64_t end = std::min(from, static_cast<int64_t>(centre + reach + 0.5));
    double sum = 0;
    std::vector<double> weights;
    for (int64_t at = taps.begin; at < end; ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

template <class T>
void resize_plane(const T* from, T* to, const Image& image, const std::vector<Taps>& rows,
                  const std::vector<Taps>& columns, std::vector<float>& narrow) {
  const size_t width = columns.size();
  narrow.resize(static_cast<size_t>(image.height) * width);
  float* between = narrow.data();
  for (int64_t y = 0; y < image.height; ++y, from += image.width)
    for (const Taps& taps : columns) {
      float sum = 0;
      for (size_t k = 0; k < taps.weights.size(); ++k)
        sum += taps.weights[k] * static_cast<float>(from[static_cast<size_t>(taps.begin) + k]);
      *between++ = sum;
    }
  for (const Taps& taps : rows)
    for (size_t x = 0; x < width; ++x) {
      float sum = 0;
      for (size_t k = 0; k < taps.weights.size(); ++k)
        sum += taps.weights[k] * narrow[(static_cast<size_t>(taps.begin) + k) * width + x];
      *to++ = element_of<T>(sum);
    }
}

}  // namespace

Tensor resize(const Tensor& image, ImageSize size, const ResizeOptions& options, std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "resize");
    check_size(size, "resize");
    Tensor result({checked.channels, size.height, size.width}, image.dtype());
    const std::vector<Taps> rows = taps_of(checked.height, size.height, options.antialias);
    const std::vector<Taps> columns = taps_of(checked.width, size.width, options.antialias);
    std::vector<float> narrow;
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      const T* from = checked.tensor.data<T>();
      T* to = result.data<T>();
      for (int64_t channel = 0; channel < checked.channels; ++channel)
        resize_plane(from + channel * checked.pixels(), to + channel * size.height * size.width, checked,
                     rows, columns, narrow);
    });
    return result;
  });
}

Resize::Resize(int64_t shorter, const ResizeOptions& options, std::source_location where)
    : Resize(ImageSize(shorter), options, where) {
  keeps_ratio_ = true;
}

Resize::Resize(ImageSize size, const ResizeOptions& options, std::source_location where)
    : size_(size), options_(options), made_(where, "Resize") {
  located(made_, [&] { check_size(size, "Resize"); });
}

Tensor Resize::operator()(const Tensor& image) const {
  return run_transform(made_, [&] {
    ImageSize size = size_;
    if (keeps_ratio_) {
      const Image checked = checked_image(image, "Resize");
      const int64_t shorter = std::min(checked.height, checked.width);
      size = {size_.height * checked.height / shorter, size_.width * checked.width / shorter};
    }
    return resize(image, size, options_);
  });
}

RandomResizedCrop::RandomResizedCrop(ImageSize size, const RandomResizedCropOptions& options,
                                     std::source_location where)
    : size_(size), options_(options), made_(where, "RandomResizedCrop") {
  located(made_, [&] {
    check_size(size, "RandomResizedCrop");
    check_ranges(options.scale, options.ratio, "RandomResizedCrop");
  });
}

Tensor RandomResizedCrop::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const Image checked = checked_image(image, "RandomResizedCrop");
    std::optional<Box> box =
        random_box({checked.height, checked.width}, options_.scale, options_.ratio, draws);
    if (!box) {
      const auto height = static_cast<double>(checked.height), width = static_cast<double>(checked.width);
      const double ratio = std::clamp(width / height, options_.ratio.low, options_.ratio.high);
      const auto fitting = [](double length, int64_t most) {
        return static_cast<int64_t>(std::round(std::clamp(length, 1.0, static_cast<double>(most))));
      };
      const int64_t h = fitting(width / ratio, checked.height), w = fitting(height * ratio, checked.width);
      box = Box{(checked.height - h) / 2, (checked.width - w) / 2, h, w};
    }
    return resize(crop(image, box->top, box->left, {box->height, box->width}), size_,
                  {.antialias = options_.antialias});
  });
}

}  // namespace espalier::data::transforms
