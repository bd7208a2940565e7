// The weights of a cubic convolution. Keys, Cubic convolution interpolation for digital image processing,
// 1981, with a = −3/4.
#pragma once
#include <array>

namespace espalier {

/// Of the elements at -1, 0, 1 and 2 from ⌊p⌋, by t = p − ⌊p⌋: a number or a Variable.
template <class T>
std::array<T, 4> cubic_weights(const T& t) {
  constexpr double a = -0.75;
  const auto near = [](const T& d) { return ((a + 2) * d - (a + 3)) * d * d + 1.0; };     // below 1
  const auto far = [](const T& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };  // from 1 to 2
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

}  // namespace espalier
