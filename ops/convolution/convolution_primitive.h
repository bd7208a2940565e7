// A convolution, or one of its gradients, as a oneDNN primitive in the layouts that are fastest there.
#pragma once
#include <memory>
#include <string>

#include "espalier/core/workspace.h"
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

/// Of operands with these layouts, which have no strides of 0.
ConvolutionStrides convolution_strides(const ConvolutionForm& form, DType dtype, const Layout& x,
                                       const Layout& kernels, const Layout& y);

/// Whether oneDNN computes convolutions of a dtype as it is: float32, and bfloat16 on processors with
/// instructions for it (AVX512-BF16, AMX).
bool has_convolution_primitive(DType dtype);

/// What a primitive computes of y in the same pass: activation(y + bias + residual).
struct ConvolutionAfter {
  enum class Activation : uint8_t { none, relu, tanh, sigmoid, clip };
  bool bias = false;      ///< a number for each channel
  bool residual = false;  ///< lies as y does, in another place
  Activation activation = Activation::none;
  float low = 0, high = 0;  ///< of clip
  /// The primitive reads kernels that `pack` has put into its layout, in memory of the caller.
  bool packed = false;
};

class ConvolutionPrimitive {
 public:
  /// Copies in the layouts of oneDNN, and scratch memory, are in the workspace. Throws UnsupportedError if
  /// oneDNN has no primitive for the sizes. What comes after is for ConvolutionResult::y alone.
  ConvolutionPrimitive(const ConvolutionSizes& sizes, ConvolutionResult result,
                       const ConvolutionStrides& strides, Workspace workspace,
                       const ConvolutionAfter& after = {});
  ~ConvolutionPrimitive();
  ConvolutionPrimitive(ConvolutionPrimitive&&) noexcept;

  /// What it takes of a workspace at most; 0 if oneDNN has no primitive.
  static int64_t workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                 const ConvolutionStrides& strides, const ConvolutionAfter& after = {});

  /// Reads two of the tensors and writes the third.
  void run(void* x, void* kernels, void* y, void* bias = nullptr, void* residual = nullptr);

  /// Where kernels are packed: how many bytes that takes, a text that differs for other layouts, and copying
  /// them there.
  int64_t packed_bytes() const;
  std::string packed_layout() const;
  void pack(void* kernels, void* packed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
