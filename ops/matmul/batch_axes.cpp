#include "espalier/ops/matmul/batch_axes.h"

#include <algorithm>

namespace espalier {

SmallVector<BatchAxis, 4> batch_axes(const GemmBatch& x) {
  SmallVector<BatchAxis, 4> axes;
  int64_t step = x.gemm.m * x.gemm.n;
  for (size_t i = x.batch.rank(); i-- > 0;) {  // the last one first
    const int64_t size = x.batch.dims()[i];
    const BatchAxis axis{size, x.a_steps[i], x.b_steps[i], step};
    step *= size;
    if (size == 1) continue;
    if (!axes.empty()) {
      BatchAxis& inner = axes.back();
      if (axis.a == inner.a * inner.size && axis.b == inner.b * inner.size) {
        inner.size *= size;
        continue;
      }
    }
    axes.push_back(axis);
  }
  const auto longest = std::max_element(
      axes.begin(), axes.end(), [](const BatchAxis& x, const BatchAxis& y) { return x.size < y.size; });
  if (!axes.empty()) std::swap(*longest, axes.back());
  return axes;
}

namespace {

int64_t launches_of(const GemmBatch& product) {
  const SmallVector<BatchAxis, 4> axes = batch_axes(product);
  int64_t count = 1;
  for (size_t i = 0; i + 1 < axes.size(); ++i) count *= axes[i].size;
  return count;
}

}  // namespace

BatchCopies batch_copies(DType dtype, const Layout& a, const Layout& b, const Shape& out, MatmulForm form) {
  constexpr int64_t most_bytes = int64_t{1} << 27;
  const auto is_large = [&](const Layout& x) {
    return x.shape.elements() * static_cast<int64_t>(size_of(dtype)) > most_bytes;
  };
  BatchCopies best;
  int64_t least = launches_of(gemm_of(dtype, a, b, out, form)) - 1;  // a gain of one launch is none
  if (least <= 0) return best;
  for (const BatchCopies& tried :
       {BatchCopies{true, false}, BatchCopies{false, true}, BatchCopies{true, true}}) {
    if ((tried.a && is_large(a)) || (tried.b && is_large(b))) continue;
    const GemmBatch product =
        gemm_of(dtype, tried.a ? Layout(a.shape) : a, tried.b ? Layout(b.shape) : b, out, form);
    const int64_t launches = launches_of(product) + tried.a + tried.b;
    if (launches < least) best = tried, least = launches;
  }
  return best;
}

}  // namespace espalier
