// The functions of ops/functions/regions.h: checked options, and values from the ops of regions.
#include "espalier/ops/functions/regions.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/regions/region_ops.h"
#include "espalier/ops/views/window_numbers.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

RoiForm form_of(const PerAxis& size, double scale, std::string_view function) {
  const Dims sizes = numbers_for_axes(size, 2, 1, "size", function);
  if (!(scale > 0) || !std::isfinite(scale))
    throw Error(fmt::format("{}: a scale of {}; it is finite and above 0", function, scale));
  RoiForm form;
  form.height = sizes[0];
  form.width = sizes[1];
  form.scale = scale;
  return form;
}
RoiForm form_of(const RoiAlignOptions& o, std::string_view function) {
  RoiForm form = form_of(o.size, o.scale, function);
  if (o.samples < 0 || o.samples > most_samples_of_a_box)
    throw Error(fmt::format("{}: {} samples along an axis of a bin", function, o.samples));
  form.samples = o.samples;
  form.aligned = o.aligned;
  return form;
}

/// The images, and boxes [k, 4] with the numbers of theirs.
struct Regions {
  Variable x, boxes, images;
};

/// Boxes [k, 5] in two parts.
Regions from_rows(const Variable& x, const Variable& boxes, std::string_view function) {
  if (boxes.rank() != 2 || boxes.shape()[1] != 5)
    throw ShapeError(fmt::format("{}: boxes of shape {}, not [k, 5]: the number of an image and two corners",
                                 function, boxes.shape().str()));
  if (!is_real(boxes.dtype()))
    throw TypeError(fmt::format("{}: boxes are {}, not real numbers", function, name(boxes.dtype())));
  return {x, slice(boxes, 1, 1, 5), cast(squeeze(slice(boxes, 1, 0, 1), 1), int64)};
}

template <class F>
Variable in_regions(const Operand& x, const Operand& boxes, const Operand* images, const RoiForm& form,
                    std::string_view function, F&& f) {
  const Variable &from = x.defined(function), &given = boxes.defined(function);
  const Regions all =
      images ? Regions{from, given, images->defined(function)} : from_rows(from, given, function);
  (void)check_regions({all.x.dtype(), all.x.shape()}, {all.boxes.dtype(), all.boxes.shape()},
                      {all.images.dtype(), all.images.shape()}, form, function);
  return rounded(f(Regions{widened(all.x), widened(all.boxes), all.images}), from.dtype());
}

/// The elements of x at these places, 0 at -1.
Variable chosen(const Variable& x, const Variable& places) {
  const Variable none = less(places, int64_t{0});
  const Variable elements = gather(flatten(x), where(none, zeros_like(places), places));
  return where(none, zeros_like(elements), elements);
}

Variable align(const Operand& x, const Operand& boxes, const Operand* images, const RoiAlignOptions& o) {
  const CallScope scope(x.where(), "roi_align");
  return located(x.where(), [&] {
    const RoiForm form = form_of(o, "roi_align");
    return in_regions(x, boxes, images, form, "roi_align", [&](const Regions& r) {
      if (!o.largest) return roi_align_bins(r.x, r.boxes, r.images, form, x.where());
      const auto [places, shares] = roi_align_argmax(r.x, r.boxes, r.images, form, x.where());
      return shares * chosen(r.x, places);
    });
  });
}
Variable pool(const Operand& x, const Operand& boxes, const Operand* images, const RoiPoolOptions& o) {
  const CallScope scope(x.where(), "roi_pool");
  return located(x.where(), [&] {
    const RoiForm form = form_of(o.size, o.scale, "roi_pool");
    return in_regions(x, boxes, images, form, "roi_pool", [&](const Regions& r) {
      return chosen(r.x, roi_argmax(r.x, r.boxes, r.images, form, x.where()));
    });
  });
}

}  // namespace

Variable roi_align(const Operand& x, const Operand& boxes, const RoiAlignOptions& options) {
  return align(x, boxes, nullptr, options);
}
Variable roi_align(const Operand& x, const Operand& boxes, const Operand& images,
                   const RoiAlignOptions& options) {
  return align(x, boxes, &images, options);
}
Variable roi_pool(const Operand& x, const Operand& boxes, const RoiPoolOptions& options) {
  return pool(x, boxes, nullptr, options);
}
Variable roi_pool(const Operand& x, const Operand& boxes, const Operand& images,
                  const RoiPoolOptions& options) {
  return pool(x, boxes, &images, options);
}

}  // namespace espalier
