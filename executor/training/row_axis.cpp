#include "espalier/executor/training/row_axis.h"

namespace espalier {

Tensor with_shape(const Tensor& tensor, Shape shape) {
  Layout layout(std::move(shape));
  layout.offset = tensor.layout().offset;
  return Tensor(tensor.storage(), std::move(layout), tensor.dtype());
}

Tensor join(const std::vector<Tensor>& parts, size_t axis, const Tensor& like) {
  Shape shape = like.shape();
  shape.dims()[axis] = 0;
  for (const Tensor& part : parts) shape.dims()[axis] += part.shape().dims()[axis];
  Tensor whole(shape, like.dtype());
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    const int64_t end = begin + part.shape().dims()[axis];
    Tensor to = whole.slice(static_cast<int64_t>(axis), begin, end);
    copy_elements(part, to);
    begin = end;
  }
  return whole;
}

}  // namespace espalier
