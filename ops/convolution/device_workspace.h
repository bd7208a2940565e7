// The workspace of a convolution on a GPU.
#pragma once
#include <algorithm>
#include <cstdint>

#include "espalier/core/dtype.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier {

/// The most bytes of workspace that an algorithm may have: four times the operands up to 64 MiB, beyond that
/// twice the operands up to 512 MiB. For tensor cores cuDNN copies large operands of float32 into another
/// order, all of them.
inline int64_t device_workspace_bytes(const ConvolutionSizes& s, DType dtype) {
  const int64_t elements =
      s.batch * s.groups * (s.in_channels * s.in_places() + s.out_channels * s.out_places()) +
      s.groups * s.out_channels * s.in_channels * s.kernel_places();
  constexpr int64_t least = int64_t{1} << 20, medium = int64_t{64} << 20, most = int64_t{512} << 20;
  if (elements > most) return most;  // the products below are countable
  const int64_t operands = elements * static_cast<int64_t>(size_of(dtype));
  return std::max(std::clamp(4 * operands, least, medium), std::min(2 * operands, most));
}

/// The bytes of the kernels with the channels last, beside those of the algorithm.
inline int64_t kernels_workspace_bytes(const ConvolutionSizes& s, DType dtype) {
  return Workspace::bytes_for({dtype, {s.groups * s.out_channels, s.in_channels, s.kernel_places()}});
}

}  // namespace espalier
