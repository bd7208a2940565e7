// Means of bilinear samples of the bins of boxes, and the transpose of that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/regions/box_samples.h"
#include "espalier/ops/regions/region_ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier {

Attributes RoiForm::attributes() const {
  return {{"height", height}, {"width", width}, {"scale", scale}, {"samples", samples}, {"aligned", aligned}};
}
RoiForm RoiForm::read(AttributeReader& reader) {
  RoiForm form;
  form.height = reader.integer("height", 1);
  form.width = reader.integer("width", 1);
  form.scale = reader.real("scale");
  form.samples = reader.integer("samples", 0);
  if (form.height > most_of_a_window) reader.refuse("height");
  if (form.width > most_of_a_window) reader.refuse("width");
  if (!(form.scale > 0) || !std::isfinite(form.scale)) reader.refuse("scale");
  if (form.samples > most_samples_of_a_box) reader.refuse("samples");
  form.aligned = reader.flag("aligned");
  return form;
}
RoiForm RoiForm::of(const Op& op) {
  const Attributes attributes = op.attributes();
  AttributeReader reader(op.name(), attributes);
  return read(reader);
}

Shape check_regions(const Spec& x, const Spec& boxes, const Spec& images, const RoiForm& form,
                    std::string_view op) {
  check_dtype<Reals>(x, op);
  check_same_dtype(x, boxes, op);
  if (images.dtype != DType::int32 && images.dtype != DType::int64)
    throw TypeError(fmt::format("{}: numbers of images are {}, not int32 or int64", op, name(images.dtype)));
  if (x.shape.rank() != 4 || boxes.shape.rank() != 2 || boxes.shape[1] != 4 || images.shape.rank() != 1 ||
      images.shape[0] != boxes.shape[0])
    throw ShapeError(
        fmt::format("{}: boxes of shape {} with numbers of shape {} of images of shape {}, not [k, 4], [k] "
                    "and [n, channels, height, width]",
                    op, boxes.shape.str(), images.shape.str(), x.shape.str()));
  if (x.shape[2] == 0 || x.shape[3] == 0)
    throw ShapeError(fmt::format("{}: images of shape {} have no elements to read", op, x.shape.str()));
  const int64_t bins = std::max(form.height, form.width), samples = std::max<int64_t>(form.samples, 1);
  if (bins > most_samples_of_a_box / samples)
    throw ShapeError(fmt::format("{}: {} bins with {} samples each along an axis, more than {}", op, bins,
                                 samples, most_samples_of_a_box));
  Shape out{boxes.shape[0], x.shape[1], form.height, form.width};
  check_countable(out, op);
  return out;
}

namespace {

class RoiOp : public Op {
 public:
  RoiOp(const RoiForm& form, InputSet reads)
      : Op({.linearity = Linearity::first,
            .reads = reads,
            .gradient_reads = {InputSet::only(1).bits | InputSet::only(2).bits}}),
        form_(form) {}
  Attributes attributes() const override { return form_.attributes(); }
  /// A box reads the image that its number names, wherever it is in the batch.
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }

 protected:
  RoiForm form_;
};

struct RoiAlignBins : RoiOp {
  explicit RoiAlignBins(const RoiForm& form) : RoiOp(form, InputSet::all()) {}
  std::string_view name() const override { return "roi_align"; }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, check_regions(*in[0], *in[1], *in[2], form_, name())}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), boxes = call.inputs[1]->contiguous_copy();
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = static_cast<T*>(call.outputs[0]->address());
        const int64_t channels = x.shape()[1], plane = x.shape()[2] * x.shape()[3], width = x.shape()[3];
        each_box<T>(boxes, *call.inputs[2], x.shape(), form_, name(),
                    [&](int64_t box, int64_t image, const AxisSamples<T>& ys, const AxisSamples<T>& xs) {
                      each_channel(channels, work_of(ys, xs), [&](int64_t c) {
                        one_plane(from + (image * channels + c) * plane, width, ys, xs,
                                  to + (box * channels + c) * ys.bins * xs.bins);
                      });
                    });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override;

 private:
  template <class T>
  static void one_plane(const T* from, int64_t width, const AxisSamples<T>& ys, const AxisSamples<T>& xs,
                        T* to) {
    const T count = static_cast<T>(std::max<int64_t>(ys.each * xs.each, 1));
    for (int64_t i = 0; i < ys.bins; ++i)
      for (int64_t j = 0; j < xs.bins; ++j) {
        T sum(0);
        for (const AxisTap<T>& y : ys.of(i)) {
          for (const AxisTap<T>& x : xs.of(j)) {
            const T *upper = from + y.low * width, *lower = from + y.high * width;
            sum += y.low_share * (x.low_share * upper[x.low] + x.high_share * upper[x.high]) +
                   y.high_share * (x.low_share * lower[x.low] + x.high_share * lower[x.high]);
          }
        }
        *to++ = sum / count;
      }
  }
};

/// The transpose, in the shape of its last input: what each element counts in the bins.
struct RoiAlignSpread : RoiOp {
  explicit RoiAlignSpread(const RoiForm& form) : RoiOp(form, InputSet::first(3)) {}
  std::string_view name() const override { return "roi_align_spread"; }
  Specs infer(const InputSpecs& in) const override {
    const Shape bins = check_regions(*in[3], *in[1], *in[2], form_, name());
    check_same_dtype(*in[0], *in[1], name());
    if (!(in[0]->shape == bins))
      throw ShapeError(fmt::format("{}: bins of shape {}, not {}", name(), in[0]->shape.str(), bins.str()));
    return {{in[0]->dtype, in[3]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor g = call.inputs[0]->contiguous_copy(), boxes = call.inputs[1]->contiguous_copy();
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(g.address());
        T* to = static_cast<T*>(out.address());
        const Shape& x = out.shape();
        const int64_t channels = x[1], plane = x[2] * x[3], width = x[3];
        each_box<T>(boxes, *call.inputs[2], x, form_, name(),
                    [&](int64_t box, int64_t image, const AxisSamples<T>& ys, const AxisSamples<T>& xs) {
                      each_channel(channels, work_of(ys, xs), [&](int64_t c) {
                        one_plane(from + (box * channels + c) * ys.bins * xs.bins, width, ys, xs,
                                  to + (image * channels + c) * plane);
                      });
                    });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {roi_align_bins(rule.output_gradient(), rule.input(1), rule.input(2), form_, rule.where()),
            Variable(), Variable(), Variable()};
  }

 private:
  template <class T>
  static void one_plane(const T* from, int64_t width, const AxisSamples<T>& ys, const AxisSamples<T>& xs,
                        T* to) {
    const T count = static_cast<T>(std::max<int64_t>(ys.each * xs.each, 1));
    for (int64_t i = 0; i < ys.bins; ++i)
      for (int64_t j = 0; j < xs.bins; ++j) {
        const T g = *from++ / count;
        for (const AxisTap<T>& y : ys.of(i)) {
          for (const AxisTap<T>& x : xs.of(j)) {
            T *upper = to + y.low * width, *lower = to + y.high * width;
            upper[x.low] += g * y.low_share * x.low_share;
            upper[x.high] += g * y.low_share * x.high_share;
            lower[x.low] += g * y.high_share * x.low_share;
            lower[x.high] += g * y.high_share * x.high_share;
          }
        }
      }
  }
};

Gradients RoiAlignBins::gradient(const GradientRule& rule) const {
  if (!rule.wants(0)) return {Variable(), Variable(), Variable()};
  const Variable &g = rule.output_gradient(), &boxes = rule.input(1), &images = rule.input(2),
                 &x = rule.input(0);
  return {apply(std::make_shared<RoiAlignSpread>(form_), {&g, &boxes, &images, &x}, rule.where()), Variable(),
          Variable()};
}

}  // namespace

Variable roi_align_bins(const Variable& x, const Variable& boxes, const Variable& images, const RoiForm& form,
                        const std::source_location& where) {
  return apply(std::make_shared<RoiAlignBins>(form), {&x, &boxes, &images}, where);
}

void add_region_ops(OpRegistry& ops) {
  ops.add("roi_align", 3,
          [](AttributeReader& a) { return std::make_shared<RoiAlignBins>(RoiForm::read(a)); });
  ops.add("roi_align_spread", 4,
          [](AttributeReader& a) { return std::make_shared<RoiAlignSpread>(RoiForm::read(a)); });
  ops.add("roi_align_argmax", 3, [](AttributeReader& a) { return roi_align_argmax_op(RoiForm::read(a)); });
  ops.add("roi_argmax", 3, [](AttributeReader& a) { return roi_argmax_op(RoiForm::read(a)); });
}

}  // namespace espalier
