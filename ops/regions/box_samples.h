// The samples of boxes on the CPU, found once for all channels.
#pragma once
#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/regions/region_bins.h"

namespace espalier {

/// The samples of all bins of a box along one axis that read elements, in their order.
template <class T>
struct AxisSamples {
  int64_t bins, each;  ///< samples of a bin, those outside of the axis included
  std::vector<AxisTap<T>> taps;
  std::vector<size_t> ends;  ///< of the taps of each bin

  AxisSamples(T low, T high, const RoiForm& form, int64_t bins, int64_t size) : bins(bins) {
    const BinAxis<T> axis(low, high, static_cast<T>(form.scale), bins, form.samples, form.aligned);
    each = axis.samples;
    for (int64_t number = 0; number < bins; ++number) {
      const SampleRange inside = axis.inside(number, size);
      for (int64_t sample = inside.begin; sample < inside.end; ++sample) {
        const AxisTap<T> tap(axis.at(number, sample), size);
        if (tap.low_share + tap.high_share != T(0)) taps.push_back(tap);
      }
      ends.push_back(taps.size());
    }
  }
  std::span<const AxisTap<T>> of(int64_t bin) const {
    const auto i = static_cast<size_t>(bin);
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(taps).subspan(begin, ends[i] - begin);
  }
};

/// Calls f(box, image, samples along y, samples along x) for each box, whose image has the shape `x`.
template <class T, class F>
void each_box(const Tensor& boxes, const Tensor& images, const Shape& x, const RoiForm& form,
              std::string_view op, F&& f) {
  const T* corner = static_cast<const T*>(boxes.address());
  with_indices(images, x[0], op, false, [&](auto image, int64_t count) {
    for (int64_t box = 0; box < count; ++box, corner += 4)
      f(box, image(box), AxisSamples<T>(corner[1], corner[3], form, form.height, x[2]),
        AxisSamples<T>(corner[0], corner[2], form, form.width, x[3]));
  });
}

/// Calls f(channel), on several threads if all channels are enough `work` each.
template <class F>
void each_channel(int64_t channels, int64_t work, F&& f) {
  parallel_for(channels, std::max<int64_t>(1, detail::grain / std::max<int64_t>(work, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = begin; c < end; ++c) f(c);
               });
}
template <class T>
int64_t work_of(const AxisSamples<T>& y, const AxisSamples<T>& x) {
  return 4 * static_cast<int64_t>(y.taps.size()) * static_cast<int64_t>(x.taps.size());
}

}  // namespace espalier
