// A convolution, or one of its gradients, as a oneDNN primitive in the layouts that are fastest there.
#pragma once
#include <memory>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier {

/// What is computed of x, kernels and y from the other two.
enum class ConvolutionResult : uint8_t { y, x, kernels };

/// How float32 tensors lie in memory: steps along [batch, channels, sizes…], whatever their order in a shape,
/// and [channels of the result, channels, sizes…]. All are at least 1.
struct ConvolutionStrides {
  Dims x, kernels, y;
  /// x and y have the channels as their last axis: if oneDNN is fast with that, it reads and writes them
  /// there, without copies in a layout of its own.
  bool channels_last = false;
};

class ConvolutionPrimitive {
 public:
  /// Copies in the layouts of oneDNN, and scratch memory, are in the workspace. Throws UnsupportedError if
  /// oneDNN has no primitive for the sizes.
  ConvolutionPrimitive(const ConvolutionSizes& sizes, ConvolutionResult result,
                       const ConvolutionStrides& strides, Workspace workspace);
  ~ConvolutionPrimitive();
  ConvolutionPrimitive(ConvolutionPrimitive&&) noexcept;

  /// What it takes of a workspace at most; 0 if oneDNN has no primitive.
  static int64_t workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                 const ConvolutionStrides& strides);

  /// Reads two of the tensors and writes the third.
  void run(void* x, void* kernels, void* y);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
