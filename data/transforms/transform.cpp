#include "espalier/data/transforms/transform.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "espalier/core/error.h"

namespace espalier::data::transforms {

double Draws::uniform(double low, double high) {
  double value = 0;
  fill_uniform(stream_, &value, 1, low, high);
  ++stream_.first;
  return value;
}

int64_t Draws::integer(int64_t low, int64_t high) {
  const double count = static_cast<double>(high - low) + 1;
  return std::min(high, low + static_cast<int64_t>(uniform() * count));
}

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // Box and Muller
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Tensor Compose::operator()(const Tensor& image, Draws& draws) const {
  return located(where_, [&] {
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
  if (row.empty()) throw DataError("Compose: the row has no columns");
  Draws draws(context.random);
  Row result = row;
  result[0] = (*this)(row[0], draws);
  return result;
}

}  // namespace espalier::data::transforms
