// Where in the bins of boxes, which are rounded to whole elements, the largest elements lie.
#include "espalier/core/cpu/parallel.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/regions/region_ops.h"

namespace espalier {

namespace {

class RoiArgmax : public Op {
 public:
  explicit RoiArgmax(const RoiForm& form)
      : Op({.gradient_reads = InputSet::none(), .passes_no_gradient = true}), form_(form) {}
  std::string_view name() const override { return "roi_argmax"; }
  Attributes attributes() const override { return form_.attributes(); }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }
  Specs infer(const InputSpecs& in) const override {
    return {{DType::int64, check_regions(*in[0], *in[1], *in[2], form_, name())}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), boxes = call.inputs[1]->contiguous_copy();
    auto* to = static_cast<int64_t*>(call.outputs[0]->address());
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        const T* corners = static_cast<const T*>(boxes.address());
        const int64_t channels = x.shape()[1], plane = x.shape()[2] * x.shape()[3],
                      bins = form_.height * form_.width;
        with_indices(*call.inputs[2], x.shape()[0], "roi_pool", false, [&](auto image, int64_t count) {
          parallel_for(count * channels, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t box = i / channels;
              one_plane(from, (image(box) * channels + i % channels) * plane, x.shape(), corners + 4 * box,
                        to + i * bins);
            }
          });
        });
      }
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable(), Variable()}; }

 private:
  /// `first`: the number of the plane's first element.
  template <class T>
  void one_plane(const T* from, int64_t first, const Shape& x, const T* corners, int64_t* to) const {
    const int64_t height = x[2], width = x[3];
    const T scale = static_cast<T>(form_.scale);
    for (int64_t i = 0; i < form_.height; ++i) {
      const WholeBin rows(corners[1], corners[3], scale, i, form_.height, height);
      for (int64_t j = 0; j < form_.width; ++j) {
        const WholeBin columns(corners[0], corners[2], scale, j, form_.width, width);
        int64_t best = -1;
        for (int64_t y = rows.begin; y < rows.end; ++y)
          for (int64_t z = columns.begin; z < columns.end; ++z) {
            const int64_t at = first + y * width + z;
            if (best < 0 || from[at] > from[best] || (from[at] != from[at] && from[best] == from[best]))
              best = at;
          }
        *to++ = best;
      }
    }
  }

  RoiForm form_;
};

}  // namespace

OpPtr roi_argmax_op(const RoiForm& form) { return std::make_shared<RoiArgmax>(form); }

Variable roi_argmax(const Variable& x, const Variable& boxes, const Variable& images, const RoiForm& form,
                    const std::source_location& where) {
  return apply(roi_argmax_op(form), {&x, &boxes, &images}, where);
}

}  // namespace espalier
