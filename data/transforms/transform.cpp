#include "espalier/data/transforms/transform.h"

#include "espalier/core/error.h"

namespace espalier::data::transforms {

Tensor Compose::operator()(const Tensor& image, Draws& draws) const {
  return located(made_, [&] {
    Tensor result = image;
    for (const Transform& transform : transforms_) result = transform(result, draws);
    return result;
  });
}

Tensor Compose::operator()(const Tensor& image) const {
  Draws draws;
  return (*this)(image, draws);
}

Row Compose::operator()(const Row& row, const RowContext& context) const {
  return located(made_, [&] {
    if (row.empty()) throw DataError("Compose: the row has no columns");
    Draws draws(context.random);
    Row result = row;
    result[0] = (*this)(row[0], draws);
    return result;
  });
}

}  // namespace espalier::data::transforms
