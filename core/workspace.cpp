#include "espalier/core/workspace.h"

namespace espalier {

Tensor Workspace::take(const Shape& shape, DType dtype, Device device) {
  const int64_t bytes = bytes_for({dtype, shape});
  if (!region_.defined() || used_ + bytes > static_cast<int64_t>(region_.bytes()))
    return Tensor(shape, dtype, device);
  const auto begin = region_.layout().offset * static_cast<int64_t>(size_of(region_.dtype())) + used_;
  used_ += bytes;
  Layout layout(shape);
  layout.offset = begin / static_cast<int64_t>(size_of(dtype));
  return Tensor(region_.storage(), std::move(layout), dtype);
}

}  // namespace espalier
