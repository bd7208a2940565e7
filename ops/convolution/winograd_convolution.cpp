#include "espalier/ops/convolution/winograd_convolution.h"

#include <algorithm>
#include <utility>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/convolution/winograd_kernels.h"
#include "espalier/ops/convolution/winograd_tiles.h"

namespace espalier::winograd {

namespace {

constexpr size_t row_axis = 1, column_axis = 2;  // of ConvolutionSizes
constexpr double worth_a_thread = 4e6;           // operations, as for products

Images images_of(float* data, const ConvolutionSizes::PerAxis3& sizes, int64_t channels, const Dims& steps) {
  const size_t rank = steps.size();
  return {data,     sizes[row_axis], sizes[column_axis], channels,
          steps[0], steps[1],        steps[rank - 2],    steps[rank - 1]};
}

int64_t up_to_multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

Tensor take_floats(Workspace& workspace, int64_t elements) {
  return workspace.take({elements}, DType::float32, Device());
}
int64_t bytes_of(int64_t elements) { return Workspace::bytes_for({DType::float32, {elements}}); }

/// The sizes of a convolution to y, or of g with rotated kernels to the gradient of x.
struct ImagesForm {
  ImagesForm(const ConvolutionSizes& s, ConvolutionResult result)
      : to_x(result == ConvolutionResult::x),
        in(to_x ? s.out_channels : s.in_channels),
        out(to_x ? s.in_channels : s.out_channels),
        grid(grid_of(s, to_x)) {
    // Transformed tiles stay in the second level of the caches, but where there are many kernels, reading
    // these for each block takes longer than reading tiles again.
    constexpr int64_t rows = 6, least = 2 * rows, most = 12 * rows, budget = 1 << 17, many_kernels = 1 << 15;
    const int64_t fit = budget / (in_lanes<float>(in) + in_lanes<float>(out)) / tile_elements;
    const int64_t size = in * out < many_kernels ? std::clamp(fit, least, most) / rows * rows : most;
    const int64_t count = (grid.tiles + size - 1) / size;
    block = up_to_multiple((grid.tiles + count - 1) / count, rows);
    threads = s.flops() < worth_a_thread ? 1 : std::clamp<int64_t>(grid.tiles / rows, 1, num_threads());
    block = std::min(block, up_to_multiple((grid.tiles + threads - 1) / threads, rows));
    blocks = (grid.tiles + block - 1) / block;
    threads = std::min(threads, blocks);
  }
  TileMatrices data(float* at) const { return TileMatrices::in_rows(at, block, in); }
  TileMatrices products(float* at) const { return TileMatrices::in_rows(at, block, out); }
  PanelMatrices kernels(float* at) const { return {at, in, out}; }
  /// Of the tiles of a thread.
  int64_t elements() const { return data(nullptr).elements() + products(nullptr).elements(); }

  bool to_x;
  int64_t in, out;
  TileGrid grid;
  int64_t block = 0, blocks = 0, threads = 1;  ///< tiles of a block, blocks, and threads that share these

 private:
  static TileGrid grid_of(const ConvolutionSizes& s, bool to_x) {
    const auto& sizes = to_x ? s.in : s.out;
    const auto before = [&](size_t axis) { return to_x ? kernel_side - 1 - s.before[axis] : s.before[axis]; };
    return {s.batch, sizes[row_axis], sizes[column_axis], before(row_axis), before(column_axis)};
  }
};

/// y, or the gradient of x.
class ImagesMethod : public ConvolutionMethod {
 public:
  ImagesMethod(const ConvolutionSizes& sizes, ConvolutionResult result, ConvolutionStrides strides,
               Workspace& workspace, const ConvolutionAfter& after)
      : s_(sizes), form_(sizes, result), strides_(std::move(strides)), after_(after) {
    if (!after.packed) kernels_ = take_floats(workspace, form_.kernels(nullptr).elements());
    tiles_ = take_floats(workspace, form_.threads * form_.elements());
  }

  void run(const ConvolutionAddresses& at) override {
    auto* kernels = static_cast<float*>(at.kernels);
    if (!after_.packed) {
      pack(kernels, kernels_.address());
      kernels = kernels_.data<float>();
    }
    const Images x = images_of(static_cast<float*>(at.x), s_.in, s_.in_channels, strides_.x),
                 y = images_of(static_cast<float*>(at.y), s_.out, s_.out_channels, strides_.y);
    const Images &from = form_.to_x ? y : x, &to = form_.to_x ? x : y;
    const auto* bias = static_cast<const float*>(at.bias);
    const auto* residual = static_cast<const float*>(at.residual);
    parallel_for(form_.threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread) {
        float* const tiles = tiles_.data<float>() + thread * form_.elements();
        const TileMatrices data = form_.data(tiles), products = form_.products(tiles + data.elements());
        const int64_t last = form_.blocks * (thread + 1) / form_.threads;
        for (int64_t block = form_.blocks * thread / form_.threads; block < last; ++block) {
          const TileRange range{block * form_.block, std::min((block + 1) * form_.block, form_.grid.tiles)};
          transform_data(from, form_.grid, range, data);
          multiply_tiles(data, form_.kernels(kernels), range.size(), products);
          transform_output(products, to, form_.grid, range, after_, bias, residual);
        }
      }
    });
  }

  int64_t packed_bytes() const override { return bytes_of(form_.kernels(nullptr).elements()); }
  std::string packed_layout() const override { return "Winograd"; }
  void pack(void* kernels, void* packed) override {
    auto* data = static_cast<float*>(kernels);
    const Dims& steps = strides_.kernels;
    const int64_t row = steps[steps.size() - 2], column = steps[steps.size() - 1];
    if (form_.to_x)  // rotated by 180°
      transform_kernels(
          {data + (kernel_side - 1) * (row + column), form_.in, form_.out, steps[0], steps[1], -row, -column},
          form_.kernels(static_cast<float*>(packed)));
    else
      transform_kernels({data, form_.in, form_.out, steps[1], steps[0], row, column},
                        form_.kernels(static_cast<float*>(packed)));
  }

 private:
  void multiply_tiles(const TileMatrices& data, const PanelMatrices& kernels, int64_t tiles,
                      const TileMatrices& products) const {
    for (int64_t k = 0; k < tile_elements; ++k)
      for (int64_t p = 0; p < kernels.panels; ++p)
        multiply(PanelProduct<float>{.m = tiles,
                                     .n = panel,
                                     .k = form_.in,
                                     .a = data.data + k * data.element_step,
                                     .a_row = data.tile_step,
                                     .a_step = 1,
                                     .b = kernels.at(k, p),
                                     .ldb = panel,
                                     .c = products.data + k * products.element_step + p * products.panel_step,
                                     .ldc = products.tile_step});
  }

  ConvolutionSizes s_;
  ImagesForm form_;
  ConvolutionStrides strides_;
  ConvolutionAfter after_;
  Tensor kernels_, tiles_;
};

/// The sizes of a gradient of kernels.
struct KernelsForm {
  explicit KernelsForm(const ConvolutionSizes& s)
      : in(s.in_channels),
        out(s.out_channels),
        grid(s.batch, s.out[row_axis], s.out[column_axis], s.before[row_axis], s.before[column_axis]),
        block(std::min(grid.tiles, most_tiles)) {}

  TileMatrices data(float* at) const { return TileMatrices::in_panels(at, block, in); }
  TileMatrices gradient(float* at) const { return TileMatrices::in_rows(at, block, out); }
  PanelMatrices products(float* at) const { return {at, out, in}; }
  int64_t elements() const {
    return data(nullptr).elements() + gradient(nullptr).elements() + products(nullptr).elements();
  }

  static constexpr int64_t most_tiles = 48;
  int64_t in, out;
  TileGrid grid;
  int64_t block;  ///< tiles
};

/// Sums of products over all tiles, in their order, whatever the number of threads.
class KernelsMethod : public ConvolutionMethod {
 public:
  KernelsMethod(const ConvolutionSizes& sizes, ConvolutionStrides strides, Workspace& workspace)
      : s_(sizes),
        form_(sizes),
        strides_(std::move(strides)),
        memory_(take_floats(workspace, form_.elements())) {}

  void run(const ConvolutionAddresses& at) override {
    const Images x = images_of(static_cast<float*>(at.x), s_.in, s_.in_channels, strides_.x),
                 y = images_of(static_cast<float*>(at.y), s_.out, s_.out_channels, strides_.y);
    float* const memory = memory_.data<float>();
    const TileMatrices data = form_.data(memory), gradient = form_.gradient(memory + data.elements());
    const PanelMatrices products = form_.products(memory + data.elements() + gradient.elements());
    const double operations = s_.flops() / static_cast<double>(form_.grid.tiles);  // of a tile
    const int64_t tiles_of_thread = std::max<int64_t>(1, static_cast<int64_t>(worth_a_thread / operations));
    for (int64_t begin = 0; begin < form_.grid.tiles; begin += form_.block) {
      const TileRange range{begin, std::min(begin + form_.block, form_.grid.tiles)};
      parallel_for(range.size(), tiles_of_thread, [&](int64_t first, int64_t last) {
        const TileRange part{begin + first, begin + last};
        transform_data(x, form_.grid, part, from_tile(data, first));
        transform_gradient(y, form_.grid, part, from_tile(gradient, first));
      });
      const int64_t count = tile_elements * products.panels;
      parallel_for(count, std::max<int64_t>(1, count * tiles_of_thread / range.size()),
                   [&](int64_t first, int64_t last) {
                     for (int64_t i = first; i < last; ++i) add_products(data, gradient, products, i, range);
                   });
    }
    const Dims& steps = strides_.kernels;
    transform_kernel_gradient(products, {static_cast<float*>(at.kernels), form_.out, form_.in, steps[0],
                                         steps[1], steps[steps.size() - 2], steps[steps.size() - 1]});
  }

 private:
  static TileMatrices from_tile(TileMatrices m, int64_t tile) {
    m.data += tile * m.tile_step;
    return m;
  }
  /// Of one element of the tiles and one panel of channels.
  void add_products(const TileMatrices& data, const TileMatrices& gradient, const PanelMatrices& products,
                    int64_t index, TileRange range) const {
    const int64_t k = index / products.panels, p = index % products.panels;
    multiply(PanelProduct<float>{.m = form_.out,
                                 .n = panel,
                                 .k = range.size(),
                                 .a = gradient.data + k * gradient.element_step,
                                 .a_row = 1,
                                 .a_step = gradient.tile_step,
                                 .b = data.data + k * data.element_step + p * data.panel_step,
                                 .ldb = panel,
                                 .c = products.at(k, p),
                                 .ldc = panel,
                                 .add = range.begin > 0});
  }

  ConvolutionSizes s_;
  KernelsForm form_;
  ConvolutionStrides strides_;
  Tensor memory_;
};

}  // namespace

bool computes(const ConvolutionSizes& s) {
  if (s.groups != 1 || s.kernel[0] != 1 || s.in[0] != 1 || s.out[0] != 1 || s.before[0] != 0) return false;
  return std::ranges::all_of(std::array{row_axis, column_axis}, [&](size_t axis) {
    return s.kernel[axis] == kernel_side && s.stride[axis] == 1 && s.dilation[axis] == 1;
  });
}

bool is_faster(const ConvolutionSizes& s, ConvolutionResult result, const ConvolutionStrides& strides,
               const ConvolutionAfter& after) {
  if (!computes(s)) return false;
  const bool to_x = result == ConvolutionResult::x, to_kernels = result == ConvolutionResult::kernels,
             together = strides.x[1] == 1 && strides.y[1] == 1;
  const auto& windows = to_x ? s.in : s.out;
  const TileGrid grid(s.batch, windows[row_axis], windows[column_axis], 0, 0);
  const auto in = static_cast<double>(s.in_channels), out = static_cast<double>(s.out_channels),
             tiles = static_cast<double>(grid.tiles),
             places = static_cast<double>(s.batch * ConvolutionSizes::product(windows));
  const int64_t columns = to_x || to_kernels ? s.in_channels : s.out_channels;
  const double products = tiles * tile_elements / (places * kernel_side * kernel_side) *
                          static_cast<double>(in_lanes<float>(columns)) / static_cast<double>(columns),
               transforms = (together ? 20 : 38) * (1 / in + 1 / out),
               kernels = (after.packed ? 4 : 14) / tiles;
  return products * (1 + transforms) + kernels < 0.85;
}

std::unique_ptr<ConvolutionMethod> convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                               const ConvolutionStrides& strides, Workspace workspace,
                                               const ConvolutionAfter& after) {
  if (result == ConvolutionResult::kernels) return std::make_unique<KernelsMethod>(sizes, strides, workspace);
  return std::make_unique<ImagesMethod>(sizes, result, strides, workspace, after);
}

int64_t workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                        const ConvolutionAfter& after) {
  if (result == ConvolutionResult::kernels) return bytes_of(KernelsForm(sizes).elements());
  const ImagesForm form(sizes, result);
  return bytes_of(form.threads * form.elements()) +
         (after.packed ? 0 : bytes_of(form.kernels(nullptr).elements()));
}

}  // namespace espalier::winograd
