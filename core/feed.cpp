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
  const std::vector<Shape> all = shapes(epoch, step);
  const std::vector<Spec> full = specs();
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < all.size(); ++i) outputs.emplace_back(all[i], full[i].dtype);
  read(epoch, step, outputs);
  return outputs;
}

std::vector<Shape> Feed::shapes(int64_t epoch, int64_t step) const {
  std::vector<Shape> all;
  for (const Spec& spec : specs()) {
    all.push_back(spec.shape);
    if (spec.shape.rank()) all.back().dims()[0] = rows(step);
  }
  std::vector<int64_t> sizes;
  add_open_sizes(epoch, step, sizes);
  const std::vector<OpenAxis> open = open_axes();
  for (size_t i = 0; i < sizes.size(); ++i) all[open[i].output].dims()[open[i].axis] = sizes[i];
  return all;
}

}  // namespace espalier
