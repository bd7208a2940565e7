// A convolution of float32 or bfloat16, or one of its gradients, by the method that is fastest for its sizes.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_method.h"

namespace espalier {

/// Of operands with these layouts, which have no strides of 0.
ConvolutionStrides convolution_strides(const ConvolutionForm& form, DType dtype, const Layout& x,
                                       const Layout& kernels, const Layout& y);

/// Whether there are methods for a dtype: float32, and bfloat16 on processors that are faster with it.
bool has_convolution_primitive(DType dtype);

class ConvolutionPrimitive {
 public:
  /// Copies in other layouts, and scratch memory, are in the workspace. Throws UnsupportedError if there is
  /// no method for the sizes. What comes after is for ConvolutionResult::y alone.
  ConvolutionPrimitive(const ConvolutionSizes& sizes, ConvolutionResult result,
                       const ConvolutionStrides& strides, Workspace workspace,
                       const ConvolutionAfter& after = {});

  /// What it takes of a workspace at most; nothing if there is no method.
  static std::optional<int64_t> workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                                const ConvolutionStrides& strides,
                                                const ConvolutionAfter& after = {});

  /// Reads two of the tensors and writes the third.
  void run(void* x, void* kernels, void* y, void* bias = nullptr, void* residual = nullptr) {
    method_->run({x, kernels, y, bias, residual});
  }

  /// See ConvolutionMethod.
  int64_t packed_bytes() const { return method_->packed_bytes(); }
  std::string packed_layout() const { return method_->packed_layout(); }
  void pack(void* kernels, void* packed) { method_->pack(kernels, packed); }

 private:
  std::unique_ptr<ConvolutionMethod> method_;
};

}  // namespace espalier
