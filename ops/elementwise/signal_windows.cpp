#include "espalier/ops/functions/signal_windows.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <string_view>

#include "espalier/core/error.h"

namespace espalier {

namespace {

/// Σ terms[k] cos(k p).
Tensor sum_of_cosines(std::string_view function, int64_t n, const SignalWindowOptions& options,
                      std::initializer_list<double> terms, const std::source_location& where) {
  return located(where, [&] {
    if (n < 0) throw ShapeError(fmt::format("{}: a window of {} elements", function, n));
    if (!is_real(options.dtype))
      throw TypeError(
          fmt::format("{}: a window of {}; its elements are real", function, name(options.dtype)));
    if (n == 1) return ones({1}, options.dtype);
    Tensor window({n}, float64);
    const auto period = static_cast<double>(options.periodic ? n : n - 1);
    int64_t i = 0;
    for (double& element : window.span<double>()) {
      const double phase = 2 * std::numbers::pi * static_cast<double>(i++) / period;
      double k = 0;
      element = 0;
      for (const double term : terms) element += term * std::cos(k++ * phase);
    }
    return window.to(options.dtype);
  });
}

}  // namespace

Tensor hann_window(int64_t n, const SignalWindowOptions& options, std::source_location where) {
  return sum_of_cosines("hann_window", n, options, {0.5, -0.5}, where);
}
Tensor hamming_window(int64_t n, const SignalWindowOptions& options, double alpha,
                      std::source_location where) {
  return sum_of_cosines("hamming_window", n, options, {alpha, alpha - 1}, where);
}
Tensor blackman_window(int64_t n, const SignalWindowOptions& options, std::source_location where) {
  return sum_of_cosines("blackman_window", n, options, {0.42, -0.5, 0.08}, where);
}

}  // namespace espalier
