// Convolutions along one, two or three axes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

/// Zeros at the ends of the axes that are convolved: one number for all ends, one for both ends of each axis,
/// or two for each axis.
class ConvolutionPadding {
 public:
  ConvolutionPadding(int64_t all) : ends_{{all, all}} {}
  ConvolutionPadding(std::initializer_list<int64_t> each) {
    for (const int64_t both : each) ends_.push_back({both, both});
  }
  ConvolutionPadding(std::initializer_list<Padding> each) : ends_(each) {}
  ConvolutionPadding(const std::vector<Padding>& each) : ends_(each) {}
  /// As many as keep the sizes, the odd one behind; for strides of 1.
  static ConvolutionPadding same() {
    ConvolutionPadding padding(0);
    padding.same_ = true;
    return padding;
  }

  bool keeps_sizes() const { return same_; }
  size_t size() const { return ends_.size(); }
  Padding operator[](size_t axis) const { return ends_[ends_.size() == 1 ? 0 : axis]; }

 private:
  std::vector<Padding> ends_;
  bool same_ = false;
};

struct ConvolutionOptions {
  PerAxis stride = 1;
  ConvolutionPadding padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;  ///< of channels, each convolved with its own kernels
};
/// The cross-correlation, as PyTorch's conv1d, conv2d and conv3d: x [batch, channels, sizes…] and kernels
/// [channels of the result, channels / groups, kernel sizes…] give [batch, channels of the result,
/// ⌊(size + padding − dilation · (kernel − 1) − 1) / stride⌋ + 1, …]. Without a batch, x and the result have
/// no axis for it. Throws ShapeError for other shapes and where a kernel is larger than the padded axis,
/// Error for a stride, dilation or number of groups below 1 and for negative padding.
Variable conv(const Operand& x, const Variable& kernels, const ConvolutionOptions& options = {});
/// The same and `bias` [channels of the result] added.
Variable conv(const Operand& x, const Variable& kernels, const Variable& bias,
              const ConvolutionOptions& options = {});

struct TransposedConvolutionOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;         ///< of the convolution that it transposes: so much is cut off at both ends
  PerAxis output_padding = 0;  ///< so much longer is each axis; less than stride or dilation
  PerAxis dilation = 1;
  int64_t groups = 1;
};
/// The transpose of conv, as PyTorch's conv_transpose1d, 2d and 3d: x [batch, channels, sizes…] and kernels
/// [channels, channels of the result / groups, kernel sizes…] give axes of
/// (size − 1) · stride + dilation · (kernel − 1) + 1 − 2 · padding + output_padding. Throws as conv, and for
/// an output_padding that is less than neither stride nor dilation.
Variable conv_transpose(const Operand& x, const Variable& kernels,
                        const TransposedConvolutionOptions& options = {});
Variable conv_transpose(const Operand& x, const Variable& kernels, const Variable& bias,
                        const TransposedConvolutionOptions& options = {});

}  // namespace espalier
