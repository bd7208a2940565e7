// What functions of images have in common.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/tensor.h"

namespace espalier::data::transforms {

/// Runs the work of a transform that was constructed at `made`: errors have its name and that line, also
/// those of functions that it calls.
template <class F>
decltype(auto) run_transform(const CallSite& made, F&& f) {
  const CallScope scope(made);
  return located(made, f);
}

/// A contiguous image on the CPU, and its sizes.
struct Image {
  Tensor tensor;
  int64_t channels = 0, height = 0, width = 0;
  int64_t pixels() const { return height * width; }
};

/// Throws TypeError unless the elements are uint8 or float32, ShapeError unless it is an image; both name
/// `call`.
inline Image checked_image(const Tensor& image, std::string_view call) {
  if (!image.defined()) throw TypeError(fmt::format("{}: the image is undefined", call));
  if (image.dtype() != DType::uint8 && image.dtype() != DType::float32)
    throw TypeError(
        fmt::format("{}: the image is {}, not uint8 or float32; cast it", call, name(image.dtype())));
  if (image.rank() != 3 || image.elements() == 0)
    throw ShapeError(fmt::format("{}: {} is no image [channels, height, width]", call, image.shape().str()));
  return {image.to(cpu()).contiguous_copy(), image.shape()[0], image.shape()[1], image.shape()[2]};
}

/// Throws TypeError, naming `call`, for a value of pixels that the image's elements cannot have.
inline void check_fill(const Image& image, double fill, std::string_view call) {
  if (image.tensor.dtype() == DType::uint8 && !(fill >= 0 && fill <= 255 && fill == std::floor(fill)))
    throw TypeError(fmt::format("{}: {} is not a number of type uint8, which the image has", call, fill));
}

/// Calls `f` with a tag of the element type.
template <class F>
void on_elements(const Image& image, F&& f) {
  if (image.tensor.dtype() == DType::uint8)
    f(TypeTag<uint8_t>{});
  else
    f(TypeTag<float>{});
}

/// The largest value of a color.
template <class T>
constexpr float full_scale = std::is_same_v<T, uint8_t> ? 255.0f : 1.0f;

/// Of an element: uint8 is rounded, and clamped to its range.
template <class T>
T element_of(float value) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
  else
    return value;
}

/// Of a color: reals are clamped, too.
template <class T>
T color_of(float value) {
  return element_of<T>(std::clamp(value, 0.0f, full_scale<T>));
}

}  // namespace espalier::data::transforms
