#include "espalier/ops/convolution/winograd_kernels.h"

#include "espalier/core/cpu/lanes.h"
#include "espalier/core/cpu/parallel.h"

namespace espalier::winograd {

namespace {

constexpr int kernel_elements = kernel_side * kernel_side;

/// Steps through kernels, of which the vectors have output channels.
template <int bytes>
struct KernelVectors {
  using V = typename VectorOf<float, bytes>::Vector;
  static constexpr int count = VectorOf<float, bytes>::count;

  const Kernels& kernels;

  /// Calls `f(where it is in a panel, panel, channels that are there, where that is in memory)`. A range
  /// counts the input channels of all panels.
  template <class F>
  [[gnu::always_inline]] void each(TileRange range, const F& f) const {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t in = i % kernels.in, of_panel = i / kernels.in;
      for (int64_t l = 0; l < panel; l += count) {
        const int64_t out = of_panel * panel + l;
        f(in * panel + l, of_panel, std::clamp<int64_t>(kernels.out - out, 0, count),
          kernels.data + in * kernels.in_step + out * kernels.out_step);
      }
    }
  }
  [[gnu::always_inline]] int64_t place(int k) const {
    return k / kernel_side * kernels.row_step + k % kernel_side * kernels.column_step;
  }
  /// The elements of `n` kernels, and 0 for others.
  [[gnu::always_inline]] void gather(const float* from, int64_t n,
                                     float (&to)[kernel_elements][count]) const {
    for (int64_t l = 0; l < count; ++l)
      for (int k = 0; k < kernel_elements; ++k) to[k][l] = l < n ? from[l * kernels.out_step + place(k)] : 0;
  }
  [[gnu::always_inline]] void scatter(const float (&from)[kernel_elements][count], float* to,
                                      int64_t n) const {
    for (int64_t l = 0; l < n; ++l)
      for (int k = 0; k < kernel_elements; ++k) to[l * kernels.out_step + place(k)] = from[k][l];
  }
};

struct TransformOfKernels {
  Kernels kernels;
  TileRange range;
  PanelMatrices out;

  template <int bytes>
  [[gnu::always_inline]] void run() const {
    using Vectors = KernelVectors<bytes>;
    using V = typename Vectors::V;
    const Vectors vectors{kernels};
    vectors.each(
        range, [&](int64_t at, int64_t of_panel, int64_t n, const float* from)
                   __attribute__((always_inline)) {
                     float gathered[kernel_elements][Vectors::count];
                     vectors.gather(from, n, gathered);
                     transform_square<KernelTransform, V>(
                         [&](int k, V& v) __attribute__((always_inline)) { read_lanes(gathered[k], v); },
                         [&](int k, const V& v)
                             __attribute__((always_inline)) { write_lanes(v, out.at(k, of_panel) + at); });
                   });
  }
};

struct TransformOfKernelGradient {
  PanelMatrices m;
  Kernels kernels;
  TileRange range;

  template <int bytes>
  [[gnu::always_inline]] void run() const {
    using Vectors = KernelVectors<bytes>;
    using V = typename Vectors::V;
    const Vectors vectors{kernels};
    vectors.each(
        range, [&](int64_t at, int64_t of_panel, int64_t n, float* to) __attribute__((always_inline)) {
          float result[kernel_elements][Vectors::count];
          transform_square<KernelGradientTransform, V>(
              [&](int k, V& v) __attribute__((always_inline)) { read_lanes(m.at(k, of_panel) + at, v); },
              [&](int k, const V& v) __attribute__((always_inline)) { write_lanes(v, result[k]); });
          vectors.scatter(result, to, n);
        });
  }
};

template <class F>
void parallel_panels(const Kernels& kernels, int64_t panels, const F& f) {
  constexpr int64_t grain = 256;  // of panel · 9 numbers
  parallel_for(panels * kernels.in, grain, f);
}

}  // namespace

void transform_kernels(const Kernels& kernels, const PanelMatrices& out) {
  parallel_panels(kernels, out.panels, [&](int64_t begin, int64_t end) {
    run_in_lanes(TransformOfKernels{kernels, {begin, end}, out});
  });
}
void transform_kernel_gradient(const PanelMatrices& m, const Kernels& kernels) {
  parallel_panels(kernels, m.panels, [&](int64_t begin, int64_t end) {
    run_in_lanes(TransformOfKernelGradient{m, kernels, {begin, end}});
  });
}

}  // namespace espalier::winograd
