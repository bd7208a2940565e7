#include "espalier/ops/convolution/window_products.h"

#include <algorithm>
#include <utility>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier::window_products {

namespace {

constexpr int64_t grain = 32 * 1024;        // elements that pay for a thread
constexpr int64_t most_elements = 1 << 21;  // of the windows: 8 MiB

int64_t windows_of(const ConvolutionSizes& s) { return s.batch * s.out_places(); }
int64_t window_size(const ConvolutionSizes& s) { return s.in_channels * s.kernel_places(); }
Spec windows_spec(const ConvolutionSizes& s) { return {DType::float32, {windows_of(s), window_size(s)}}; }

/// The step along an axis; 0 along those which are missing, of size 1.
int64_t step_along(const Dims& steps, size_t axis) {
  const size_t missing = most_convolution_axes + 2 - steps.size();
  return axis < missing ? 0 : steps[2 + axis - missing];
}
/// Whether elements along the axes lie without gaps, the first ones `step` apart.
bool are_dense(const Dims& steps, const ConvolutionSizes::PerAxis3& sizes, int64_t step) {
  for (size_t axis = most_convolution_axes; axis-- > 0; step *= sizes[axis])
    if (sizes[axis] > 1 && step_along(steps, axis) != step) return false;
  return true;
}
/// As [batch, sizes…, channels].
bool are_images(const Dims& steps, const ConvolutionSizes::PerAxis3& sizes, int64_t batch, int64_t channels) {
  return steps[1] == 1 && are_dense(steps, sizes, channels) &&
         (batch == 1 || steps[0] == channels * ConvolutionSizes::product(sizes));
}
/// As [channels of y, channels of x, sizes…].
bool are_kernels(const Dims& steps, const ConvolutionSizes& s) {
  const int64_t places = s.kernel_places();
  return are_dense(steps, s.kernel, 1) && steps[1] == places && steps[0] == places * s.in_channels;
}

class WindowProducts : public ConvolutionMethod {
 public:
  WindowProducts(const ConvolutionSizes& sizes, ConvolutionResult result, Workspace& workspace)
      : s_(sizes),
        result_(result),
        windows_(workspace.take(windows_spec(sizes).shape, DType::float32, Device())) {}

  void run(const ConvolutionAddresses& at) override {
    auto* const windows = windows_.data<float>();
    const int64_t rows = windows_of(s_), size = window_size(s_), channels = s_.out_channels;
    Gemm gemm{.dtype = DType::float32,
              .transpose_a = false,
              .transpose_b = false,
              .m = rows,
              .n = size,
              .k = channels,
              .lda = channels,
              .ldb = size,
              .ldc = size};
    switch (result_) {
      case ConvolutionResult::y:
        fill_windows(static_cast<const float*>(at.x));
        gemm.transpose_b = true;
        gemm.n = gemm.ldc = channels;
        gemm.k = gemm.lda = size;
        return run_gemm(gemm, windows, at.kernels, at.y, GemmLibrary::onednn);
      case ConvolutionResult::x:
        run_gemm(gemm, at.y, at.kernels, windows, GemmLibrary::onednn);
        return add_windows(static_cast<float*>(at.x));
      case ConvolutionResult::kernels:
        fill_windows(static_cast<const float*>(at.x));
        gemm.transpose_a = true;
        gemm.m = channels;
        gemm.k = rows;
        return run_gemm(gemm, at.y, windows, at.kernels, GemmLibrary::onednn);
    }
  }

 private:
  /// Calls `f(start of the channels in x, their first element in the window)` for each element of a kernel
  /// over each window of an image; the start is -1 in the padding.
  template <class Element, class F>
  void for_places(int64_t image, Element* windows, F&& f) const {
    const ConvolutionSizes& s = s_;
    for (int64_t o = 0; o < s.out_places(); ++o) {
      Element* const window = windows + (image * s.out_places() + o) * window_size(s);
      const int64_t position[] = {o / (s.out[1] * s.out[2]), o / s.out[2] % s.out[1], o % s.out[2]};
      for (int64_t k = 0; k < s.kernel_places(); ++k) {
        const int64_t element[] = {k / (s.kernel[1] * s.kernel[2]), k / s.kernel[2] % s.kernel[1],
                                   k % s.kernel[2]};
        int64_t place = image;
        bool inside = true;
        for (size_t a = 0; a < most_convolution_axes; ++a) {
          const int64_t i = position[a] * s.stride[a] + element[a] * s.dilation[a] - s.before[a];
          inside &= i >= 0 && i < s.in[a];
          place = place * s.in[a] + i;
        }
        f(inside ? place * s.in_channels : -1, window + k);
      }
    }
  }

  template <class F>
  void for_images(F&& f) const {
    const int64_t elements = s_.out_places() * window_size(s_);
    parallel_for(s_.batch, std::max<int64_t>(1, grain / elements), [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) f(image);
    });
  }
  void fill_windows(const float* x) {
    const int64_t channels = s_.in_channels, step = s_.kernel_places();
    for_images([&](int64_t image) {
      for_places(image, windows_.data<float>(), [&](int64_t place, float* to) {
        for (int64_t c = 0; c < channels; ++c) to[c * step] = place < 0 ? 0 : x[place + c];
      });
    });
  }
  void add_windows(float* x) {
    const int64_t channels = s_.in_channels, step = s_.kernel_places();
    for_images([&](int64_t image) {
      std::fill_n(x + image * s_.in_places() * channels, s_.in_places() * channels, 0.f);
      for_places(image, windows_.data<float>(), [&](int64_t place, const float* from) {
        for (int64_t c = 0; c < channels && place >= 0; ++c) x[place + c] += from[c * step];
      });
    });
  }

  ConvolutionSizes s_;
  ConvolutionResult result_;
  Tensor windows_;
};

}  // namespace

bool computes(const ConvolutionSizes& s, const ConvolutionStrides& strides, const ConvolutionAfter& after) {
  if (after.bias || after.residual || after.packed || after.activation != ConvolutionAfter::Activation::none)
    return false;
  return strides.dtype == DType::float32 && s.groups == 1 &&
         are_images(strides.x, s.in, s.batch, s.in_channels) &&
         are_images(strides.y, s.out, s.batch, s.out_channels) && are_kernels(strides.kernels, s) &&
         windows_of(s) * window_size(s) <= most_elements;
}

bool is_faster(const ConvolutionSizes& s, ConvolutionResult result, const ConvolutionStrides& strides,
               const ConvolutionAfter& after) {
  if (!computes(s, strides, after)) return false;
  const int64_t pairs = s.in_channels * s.out_channels;
  switch (result) {
    case ConvolutionResult::y: return windows_of(s) <= std::min<int64_t>(pairs / 256, 256);
    case ConvolutionResult::x: return windows_of(s) <= std::min<int64_t>(pairs / 256, 64);
    case ConvolutionResult::kernels: break;
  }
  return windows_of(s) <= std::min<int64_t>(pairs / 64, 256);
}

std::unique_ptr<ConvolutionMethod> convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                               Workspace workspace) {
  return std::make_unique<WindowProducts>(sizes, result, workspace);
}

int64_t workspace_bytes(const ConvolutionSizes& sizes) { return Workspace::bytes_for(windows_spec(sizes)); }

}  // namespace espalier::window_products
