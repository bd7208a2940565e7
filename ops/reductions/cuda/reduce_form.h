// The axes of a reduction, and the functions that bind its kernels, each compiled in a file of its own.
#pragma once
#include <utility>

#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu::reduction {

/// The axes of a reduction, merged where possible: kept axes in the order of the output, reduced ones by
/// descending step.
struct Form {
  Layout kept, reduced;
  const void* data;
  int64_t outputs, count;

  Form(const Tensor& in, const Dims& axes) : data(in.address()) {
    Layout stay, go;
    SmallVector<bool, 8> gone(in.rank(), false);
    for (const int64_t axis : axes) gone[static_cast<size_t>(axis)] = true;
    for (size_t i = 0; i < in.rank(); ++i) {
      Layout& to = gone[i] ? go : stay;
      to.shape.dims().push_back(in.shape().dims()[i]);
      to.strides.push_back(in.strides()[i]);
    }
    outputs = stay.shape.elements();
    count = go.shape.elements();
    sort_by_step(go);
    kept = collapsed(stay);
    reduced = collapsed(go);
  }

  /// The kept axis with the smallest step other than 0, or the rank.
  size_t closest() const {
    size_t best = kept.shape.rank();
    for (size_t i = 0; i < kept.shape.rank(); ++i)
      if (kept.strides[i] != 0 && (best == kept.shape.rank() || kept.strides[i] < kept.strides[best]))
        best = i;
    return best;
  }

 private:
  /// Puts axes of step 0 outermost, then larger steps before smaller ones.
  static void sort_by_step(Layout& layout) {
    Dims &sizes = layout.shape.dims(), &steps = layout.strides;
    const auto before = [](int64_t a, int64_t b) { return b != 0 && (a == 0 || a > b); };
    for (size_t i = 1; i < steps.size(); ++i)
      for (size_t k = i; k > 0 && before(steps[k], steps[k - 1]); --k) {
        std::swap(sizes[k], sizes[k - 1]);
        std::swap(steps[k], steps[k - 1]);
      }
  }
};

/// Sums of the elements, divided by `divisor`. The output has elements.
Bound bind_sum(const Form& form, Tensor& output, double divisor);
Bound bind_max(const Form& form, Tensor& output);
Bound bind_min(const Form& form, Tensor& output);

}  // namespace espalier::cu::reduction
