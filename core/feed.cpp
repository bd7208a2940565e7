#include "espalier/core/feed.h"

namespace espalier {

void Feed::read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const {
  const std::vector<Tensor> whole = batch(epoch, step);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool rows = outputs[i].rank() > 0;  // else a number for all
    copy_elements(rows ? whole[i].slice(0, first, first + outputs[i].shape()[0]) : whole[i], outputs[i]);
  }
}

std::vector<Tensor> Feed::batch(int64_t epoch, int64_t step) const {
  std::vector<Tensor> outputs;
  for (const Spec& spec : specs()) {
    Shape shape = spec.shape;
    if (shape.rank()) shape.dims()[0] = rows(step);
    outputs.emplace_back(shape, spec.dtype);
  }
  read(epoch, step, outputs);
  return outputs;
}

}  // namespace espalier
