// Windows of signals, as vectors.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier {

struct SignalWindowOptions {
  bool periodic = true;  ///< for spectra: the first n of n + 1 elements of the symmetric window
  DType dtype = float32;
};
// [n] with the phases p = 2πi / n, or 2πi / (n − 1) if not periodic; 1 for n = 1. Harris, On the use of
// windows for harmonic analysis with the discrete Fourier transform, 1978. ShapeError for a negative n,
// TypeError unless the dtype is real.
/// (1 − cos p) / 2.
Tensor hann_window(int64_t n, const SignalWindowOptions& options = {},
                   std::source_location where = std::source_location::current());
/// α − (1 − α) cos p. ONNX's HammingWindow has α = 25/46.
Tensor hamming_window(int64_t n, const SignalWindowOptions& options = {}, double alpha = 0.54,
                      std::source_location where = std::source_location::current());
/// 0.42 − cos(p) / 2 + 0.08 cos 2p.
Tensor blackman_window(int64_t n, const SignalWindowOptions& options = {},
                       std::source_location where = std::source_location::current());

}  // namespace espalier
