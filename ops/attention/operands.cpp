#include "espalier/ops/attention/operands.h"

#include <algorithm>

namespace espalier {

AttentionOperands::AttentionOperands(const AttentionForm& f, const KernelCall& call, size_t first)
    : form(f),
      sizes(call.inputs[0]->shape(), call.inputs[1]->shape(), call.inputs[2]->shape()),
      q(with_rows(*call.inputs[0])),
      k(with_rows(*call.inputs[1])),
      v(with_rows(*call.inputs[2])) {
  if (form.masked) {
    const Tensor& own = *call.inputs[form.mask_at(first)];
    Shape scores = q.shape();
    scores.dims()[scores.rank() - 1] = sizes.keys;
    mask = Tensor(own.storage(), broadcast_layout(own.layout(), scores), own.dtype());
  }
  if (form.keys_masked) key_mask = *call.inputs[form.key_mask_at(first)];
  if (form.keyed) keys = *call.inputs[form.keys_at(first)];
}

Tensor with_rows(const Tensor& x) {
  const bool rows = x.strides()[x.rank() - 1] == 1 || x.shape()[-1] <= 1;
  return rows ? x : x.contiguous_copy();
}

namespace {

/// The offset of position `number` of the first `axes` axes.
int64_t leading_offset(const Tensor& x, size_t axes, int64_t number) {
  int64_t at = 0;
  for (size_t axis = axes; axis-- > 0; number /= x.shape().dims()[axis])
    at += number % x.shape().dims()[axis] * x.strides()[axis];
  return at;
}

}  // namespace

int64_t work_parts(const AttentionSizes& sizes, int products, int64_t pieces, int threads) {
  constexpr double worth_a_thread = 4e6;  // operations
  const double work = sizes.product_flops(std::max(sizes.width, sizes.value_width)) * products;
  const auto worth = static_cast<int64_t>(std::min(work / worth_a_thread, 1e6));
  return std::max<int64_t>(1, std::min({pieces, worth, int64_t{threads}}));
}

int64_t start_of(const Tensor& x, size_t behind, int64_t batch, int64_t head) {
  if (x.rank() == behind) return 0;
  const size_t axis = x.rank() - behind - 1;
  return leading_offset(x, axis, batch) + head * x.strides()[axis];
}
int64_t start_of(const Tensor& x, size_t behind, int64_t batch) {
  return leading_offset(x, x.rank() - behind, batch);
}

}  // namespace espalier
