#include "espalier/data/draws.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace espalier::data::transforms
