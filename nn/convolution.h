// Convolutions along one, two or three axes, and their transposes.
#pragma once
#include <optional>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"
#include "espalier/ops/functions/convolution.h"

namespace espalier::nn {

struct ConvOptions {
  PerAxis kernel;  ///< sizes of the windows
  PerAxis stride = 1;
  ConvolutionPadding padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;  ///< of channels, each convolved with its own kernels
  bool bias = true;
  Initializer initializer = init::KaimingUniform();  ///< of the weight; the bias starts at 0
  /// Of the parameters, a real one. Without, that of the first input; float32 if the channels are given.
  std::optional<DType> dtype = {};
};

/// [n, channels, sizes…] as [n, out, …]: `conv` with own kernels. Parameters: `weight` [out, channels /
/// groups, kernel sizes…] and `bias` [out]. Throws ShapeError for an input of another rank or with other
/// channels, where a kernel is larger than the padded axis, for kernels of other axes, and unless `groups`
/// divides the channels; TypeError for another dtype; Error unless sizes are positive.
class Conv1d : public LayerOf<Conv1d> {
 public:
  /// The channels of the input come with the first call, or from a file, and then the parameters are made.
  Conv1d(int64_t out, ConvOptions options, Where where = Where::current());
  /// With the channels of the input: the parameters are there at once, on the CPU.
  Conv1d(int64_t in, int64_t out, ConvOptions options, Where where = Where::current());
};
/// The same along two axes.
class Conv2d : public LayerOf<Conv2d> {
 public:
  Conv2d(int64_t out, ConvOptions options, Where where = Where::current());
  Conv2d(int64_t in, int64_t out, ConvOptions options, Where where = Where::current());
};
/// The same along three axes.
class Conv3d : public LayerOf<Conv3d> {
 public:
  Conv3d(int64_t out, ConvOptions options, Where where = Where::current());
  Conv3d(int64_t in, int64_t out, ConvOptions options, Where where = Where::current());
};

struct ConvTransposeOptions {
  PerAxis kernel;  ///< sizes of the windows
  PerAxis stride = 1;
  PerAxis padding = 0;         ///< so much is cut off at both ends
  PerAxis output_padding = 0;  ///< so much longer is each axis; less than stride or dilation
  PerAxis dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  Initializer initializer = init::KaimingUniform();  ///< of the weight; the bias starts at 0
  std::optional<DType> dtype = {};                   ///< as in ConvOptions
};

/// [n, channels, sizes…] as [n, out, …]: `conv_transpose` with own kernels. Parameters: `weight` [channels,
/// out / groups, kernel sizes…] and `bias` [out]. Constructors are as those of Conv1d. Throws as Conv1d.
class ConvTranspose1d : public LayerOf<ConvTranspose1d> {
 public:
  ConvTranspose1d(int64_t out, ConvTransposeOptions options, Where where = Where::current());
  ConvTranspose1d(int64_t in, int64_t out, ConvTransposeOptions options, Where where = Where::current());
};
/// The same along two axes.
class ConvTranspose2d : public LayerOf<ConvTranspose2d> {
 public:
  ConvTranspose2d(int64_t out, ConvTransposeOptions options, Where where = Where::current());
  ConvTranspose2d(int64_t in, int64_t out, ConvTransposeOptions options, Where where = Where::current());
};
/// The same along three axes.
class ConvTranspose3d : public LayerOf<ConvTranspose3d> {
 public:
  ConvTranspose3d(int64_t out, ConvTransposeOptions options, Where where = Where::current());
  ConvTranspose3d(int64_t in, int64_t out, ConvTransposeOptions options, Where where = Where::current());
};

}  // namespace espalier::nn
