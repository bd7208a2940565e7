// Functions of images, and chains of them, which repeat what they draw.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/call_site.h"
#include "espalier/core/tensor.h"
#include "espalier/data/draws.h"
#include "espalier/data/views/map.h"

// Images are [channels, height, width], as read_image makes them: uint8 from 0 to 255, or float32, which
// colors expect from 0 to 1. Elements of uint8 are computed in float32 and rounded to the nearest. All
// functions throw TypeError for other dtypes and ShapeError for other shapes, and leave their image as it is.
// Classes check their settings when they are constructed; errors of theirs, then and later, name that line.
namespace espalier::data::transforms {

/// A function of an image, or of an image and random numbers; several threads call it at once.
class Transform {
 public:
  template <class F>
  requires(!std::same_as<F, Transform> && std::is_invocable_r_v<Tensor, const F&, const Tensor&, Draws&>)
      Transform(F f)  // NOLINT: a Transform is whatever is called like one
      : f_(std::move(f)) {}
  template <class F>
  requires(!std::same_as<F, Transform> && !std::invocable<const F&, const Tensor&, Draws&> &&
           std::is_invocable_r_v<Tensor, const F&, const Tensor&>) Transform(F f)  // NOLINT: as above
      : f_([f = std::move(f)](const Tensor& image, Draws&) -> Tensor { return f(image); }) {}

  Tensor operator()(const Tensor& image, Draws& draws) const { return f_(image, draws); }

 private:
  std::function<Tensor(const Tensor&, Draws&)> f_;
};

/// One transform after the other: `Compose{RandomCrop(28, {.padding = 4}), RandomHorizontalFlip(),
/// ToFloat()}`, for `map`, for an ImageFolder, or within another one. What it draws follows from seed, epoch
/// and row alone, whichever thread reads.
class Compose {
 public:
  Compose() = default;
  Compose(std::initializer_list<Transform> transforms,
          std::source_location where = std::source_location::current())
      : transforms_(transforms), made_(where, "Compose") {}

  Tensor operator()(const Tensor& image, Draws& draws) const;
  /// For chains that draw nothing; others draw the same numbers each time.
  Tensor operator()(const Tensor& image) const;
  /// Transforms the first column; the others stay. Throws DataError for a row of no columns.
  Row operator()(const Row& row, const RowContext& context) const;
  bool empty() const { return transforms_.empty(); }

 private:
  std::vector<Transform> transforms_;
  CallSite made_;
};

}  // namespace espalier::data::transforms
