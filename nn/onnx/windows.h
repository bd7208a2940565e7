// Windows that slide over axes: the attributes that convolutions and pooling share.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

struct Windows {
  std::vector<int64_t> kernel, stride, dilation;
  std::vector<Padding> padding;  ///< one for each axis

  size_t axes() const { return kernel.size(); }
  bool symmetric() const;
  bool any_padding() const;
  bool dilated() const;
  /// The elements at the start of each axis.
  std::vector<int64_t> before() const;
};

/// `kernel` is that of the weights; empty: the attribute kernel_shape. `auto_pad` is settled with the sizes
/// of `x`.
Windows windows_of(FileNode& node, const Variable& x, std::vector<int64_t> kernel = {});

}  // namespace espalier::onnx
