#include "espalier/ops/indexing/chosen.h"

#include "espalier/ops/indexing/indices.h"

namespace espalier {

Shape Chosen::shape(const Spec& x, const Spec& indices, std::string_view op) const {
  check_indices(indices, op);
  const Dims &from = x.shape.dims(), &list = indices.shape.dims();
  const size_t a = resolve_axis(axis, from.size(), op);
  if (!along) {
    Dims dims(from.begin(), from.begin() + a);
    dims.append(list.begin(), list.end());
    dims.append(from.begin() + a + 1, from.end());
    return Shape(std::move(dims));
  }
  bool fits = list.size() == from.size();
  for (size_t i = 0; fits && i < from.size(); ++i) fits = i == a || list[i] == from[i] || list[i] == 1;
  if (!fits)
    throw ShapeError(fmt::format("{}: indices of shape {} do not fit {} along axis {}", op,
                                 indices.shape.str(), x.shape.str(), axis));
  Dims dims = from;
  dims[a] = list[a];
  return Shape(std::move(dims));
}

}  // namespace espalier
