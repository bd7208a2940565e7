// A convolution, or one of its gradients, as a oneDNN primitive in the layouts that are fastest there.
#pragma once
#include <memory>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier {

/// What is computed of x, kernels and y from the other two.
enum class ConvolutionResult : uint8_t { y, x, kernels };

class ConvolutionPrimitive {
 public:
  /// For contiguous float32 tensors. Copies in those layouts, and scratch memory,
  /// are in the workspace. Throws UnsupportedError if oneDNN has no primitive for the sizes.
  ConvolutionPrimitive(const ConvolutionSizes& sizes, ConvolutionResult result, Workspace workspace);
  ~ConvolutionPrimitive();
  ConvolutionPrimitive(ConvolutionPrimitive&&) noexcept;

  /// What it takes of a workspace at most; 0 if oneDNN has no primitive.
  static int64_t workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result);

  /// Reads two of the tensors and writes the third.
  void run(void* x, void* kernels, void* y);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
