// The corners of bilinear samples in the bins of boxes that are largest when weighted.
#include "espalier/core/gradient_rule.h"
#include "espalier/core/node.h"
#include "espalier/ops/regions/box_samples.h"
#include "espalier/ops/regions/region_ops.h"

namespace espalier {

namespace {

class RoiAlignArgmax : public Op {
 public:
  explicit RoiAlignArgmax(const RoiForm& form)
      : Op({.gradient_reads = InputSet::none(), .passes_no_gradient = true}), form_(form) {}
  std::string_view name() const override { return "roi_align_argmax"; }
  Attributes attributes() const override { return form_.attributes(); }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }
  Specs infer(const InputSpecs& in) const override {
    const Shape bins = check_regions(*in[0], *in[1], *in[2], form_, name());
    return {{DType::int64, bins}, {in[0]->dtype, bins}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), boxes = call.inputs[1]->contiguous_copy();
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        auto* places = static_cast<int64_t*>(call.outputs[0]->address());
        T* shares = static_cast<T*>(call.outputs[1]->address());
        const int64_t channels = x.shape()[1], plane = x.shape()[2] * x.shape()[3], width = x.shape()[3];
        each_box<T>(boxes, *call.inputs[2], x.shape(), form_, "roi_align",
                    [&](int64_t box, int64_t image, const AxisSamples<T>& ys, const AxisSamples<T>& xs) {
                      each_channel(channels, work_of(ys, xs), [&](int64_t c) {
                        const int64_t bins = (box * channels + c) * ys.bins * xs.bins;
                        one_plane(from, (image * channels + c) * plane, width, ys, xs, places + bins,
                                  shares + bins);
                      });
                    });
      }
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable(), Variable()}; }

 private:
  /// `first`: the number of the plane's first element.
  template <class T>
  static void one_plane(const T* from, int64_t first, int64_t width, const AxisSamples<T>& ys,
                        const AxisSamples<T>& xs, int64_t* places, T* shares) {
    const auto all = static_cast<size_t>(ys.each * xs.each);
    for (int64_t i = 0; i < ys.bins; ++i)
      for (int64_t j = 0; j < xs.bins; ++j) {
        LargestCorner<T> best;
        for (const AxisTap<T>& y : ys.of(i))
          for (const AxisTap<T>& x : xs.of(j)) best.add(from + first, width, y, x);
        if (ys.of(i).size() * xs.of(j).size() < all) best.add_outside();
        *places++ = best.place < 0 ? -1 : first + best.place;
        *shares++ = best.share;
      }
  }

  RoiForm form_;
};

}  // namespace

OpPtr roi_align_argmax_op(const RoiForm& form) { return std::make_shared<RoiAlignArgmax>(form); }

LargestCorners roi_align_argmax(const Variable& x, const Variable& boxes, const Variable& images,
                                const RoiForm& form, const std::source_location& where) {
  const Variable places = apply(roi_align_argmax_op(form), {&x, &boxes, &images}, where);
  return {places, Variable(places.node(), 1)};
}

}  // namespace espalier
