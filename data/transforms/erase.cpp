#include "espalier/data/transforms/erase.h"

#include "espalier/data/transforms/checks.h"
#include "espalier/data/transforms/pixels.h"
#include "espalier/data/transforms/random_box.h"

namespace espalier::data::transforms {

namespace {
constexpr int64_t most_erased = int64_t{1} << 31;  // sums of two fit
}

Tensor erase(const Tensor& image, int64_t top, int64_t left, ImageSize size, double value,
             std::source_location where) {
  return located(where, [&] {
    const Image checked = checked_image(image, "erase");
    check_fill(checked, value, "erase");
    const auto beyond = [](int64_t at) { return at < -most_erased || at > most_erased; };
    if (size.height < 0 || size.width < 0 || beyond(size.height) || beyond(size.width) || beyond(top) ||
        beyond(left))
      throw ShapeError(fmt::format("erase: {} x {} pixels (height x width) from row {}, column {}",
                                   size.height, size.width, top, left));
    const int64_t bottom = std::min(checked.height, top + size.height),
                  right = std::min(checked.width, left + size.width);
    Tensor result = image.to(cpu()).clone();
    on_elements(checked, [&]<class T>(TypeTag<T>) {
      T* to = result.data<T>();
      for (int64_t channel = 0; channel < checked.channels; ++channel, to += checked.pixels())
        for (int64_t y = std::max<int64_t>(0, top); y < bottom; ++y)
          for (int64_t x = std::max<int64_t>(0, left); x < right; ++x)
            to[y * checked.width + x] = element_of<T>(static_cast<float>(value));
    });
    return result;
  });
}

Cutout::Cutout(int64_t side, double value, std::source_location where)
    : side_(side), value_(value), made_(where, "Cutout") {
  located(made_, [&] {
    if (side < 1 || side > most_erased)
      throw DataError(fmt::format("Cutout: a side of {} pixels, not from 1 to {}", side, most_erased));
  });
}

Tensor Cutout::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const Image checked = checked_image(image, "Cutout");
    const int64_t y = draws.integer(0, checked.height - 1), x = draws.integer(0, checked.width - 1);
    return erase(image, y - side_ / 2, x - side_ / 2, side_, value_);
  });
}

RandomErasing::RandomErasing(const RandomErasingOptions& options, std::source_location where)
    : options_(options), made_(where, "RandomErasing") {
  located(made_, [&] {
    check_probability(options.probability, "RandomErasing");
    check_ranges(options.scale, options.ratio, "RandomErasing");
  });
}

Tensor RandomErasing::operator()(const Tensor& image, Draws& draws) const {
  return run_transform(made_, [&] {
    const Image checked = checked_image(image, "RandomErasing");
    if (!draws.chance(options_.probability)) return image;
    const auto box = random_box({checked.height, checked.width}, options_.scale, options_.ratio, draws);
    return box ? erase(image, box->top, box->left, {box->height, box->width}, options_.value) : image;
  });
}

}  // namespace espalier::data::transforms
