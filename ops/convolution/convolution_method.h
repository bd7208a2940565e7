// What a way to compute convolutions offers.
#pragma once
#include <cstdint>
#include <string>

#include "espalier/ops/convolution/sizes.h"

namespace espalier {

/// oneDNN's kernels for ARM differ: ReLU of −∞ is NaN, and sigmoid of NaN is a number.
#ifdef __aarch64__
inline constexpr bool onednn_for_arm = true;
#else
inline constexpr bool onednn_for_arm = false;
#endif

/// What is computed of x, kernels and y from the other two.
enum class ConvolutionResult : uint8_t { y, x, kernels };

/// How tensors lie in memory: steps along [batch, channels, sizes…], whatever their order in a shape, and
/// [channels of the result, channels, sizes…]. All are at least 1.
struct ConvolutionStrides {
  Dims x, kernels, y;
  DType dtype = DType::float32;
  /// x and y have the channels as their last axis: if oneDNN is fast with that, it reads and writes them
  /// there, without copies in a layout of its own.
  bool channels_last = false;
};

/// What is computed of y in the same pass: activation(y + bias + residual).
struct ConvolutionAfter {
  enum class Activation : uint8_t { none, relu, tanh, sigmoid, clip };
  bool bias = false;           ///< a number for each channel
  bool residual = false;       ///< lies as y does, in another place
  bool wide_residual = false;  ///< it is float32, whatever the others are
  Activation activation = Activation::none;
  float low = 0, high = 0;  ///< of clip
  bool wide_y = false;      ///< the same for y
  /// Kernels are read that `pack` has put into the layout of the method, in memory of the caller.
  bool packed = false;
};

struct ConvolutionAddresses {
  void *x, *kernels, *y;
  void *bias = nullptr, *residual = nullptr;
};

/// A convolution of certain sizes and strides.
class ConvolutionMethod {
 public:
  virtual ~ConvolutionMethod() = default;
  /// Reads two of the tensors and writes the third.
  virtual void run(const ConvolutionAddresses& at) = 0;

  /// Where kernels are packed for ConvolutionResult::y: how many bytes that takes, a text that differs for
  /// other layouts, and copying float32 kernels there.
  virtual int64_t packed_bytes() const { return 0; }
  virtual std::string packed_layout() const { return {}; }
  virtual void pack(void* /*kernels*/, void* /*packed*/) {}
};

}  // namespace espalier
