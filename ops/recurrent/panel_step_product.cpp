#include "espalier/ops/recurrent/panel_step_product.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/matmul/panel_product.h"

namespace espalier {

namespace {

/// Registers of 64 bytes hold the sums of four vectors of columns.
template <class T>
int64_t columns_of_panel() {
  return panel_lanes<T> * (vector_level() == VectorLevel::avx512 ? 4 : 1);
}

constexpr int64_t multiplied_by_a_thread = 2'000'000;  // multiplications and additions
constexpr int64_t copied_by_a_thread = 32 * 1024;      // elements

template <class T>
struct PanelSizes {
  explicit PanelSizes(const StepProductSizes& s)
      : width(columns_of_panel<T>()),
        count((s.columns + width - 1) / width),
        packed{dtype_of<T>(), Shape{count, s.inner, width}},
        last{dtype_of<T>(), Shape{s.columns % width && !s.rows.empty() ? s.rows.front() : 0, width}} {}
  int64_t bytes() const { return Workspace::bytes_for(packed) + Workspace::bytes_for(last); }

  int64_t width, count;
  Spec packed;
  Spec last;  ///< of the product with a last panel that has fewer columns
};

template <class T>
class PanelStepProduct : public PackedStepProduct {
 public:
  PanelStepProduct(const StepProductSizes& s, Workspace& workspace)
      : PanelStepProduct(s, PanelSizes<T>(s), workspace) {}

  void set_matrix(const void* matrix) override {
    const auto* from = static_cast<const T*>(matrix);
    parallel_for(count_, std::max<int64_t>(1, copied_by_a_thread / (inner_ * width_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t panel = begin; panel < end; ++panel) pack(from, panel);
                 });
  }

  void run(int64_t rows, const void* a, void* out) override {
    const auto* from = static_cast<const T*>(a);
    auto* to = static_cast<T*>(out);
    const int64_t operations = std::max<int64_t>(1, 2 * rows * inner_ * width_);
    parallel_for(count_, (multiplied_by_a_thread + operations - 1) / operations,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t panel = begin; panel < end; ++panel) multiply_by(panel, rows, from, to);
                 });
  }

 private:
  PanelStepProduct(const StepProductSizes& s, const PanelSizes<T>& panels, Workspace& workspace)
      : inner_(s.inner),
        columns_(s.columns),
        width_(panels.width),
        count_(panels.count),
        transposed_(s.transposed),
        packed_(workspace.take(panels.packed.shape, panels.packed.dtype, cpu())),
        last_(workspace.take(panels.last.shape, panels.last.dtype, cpu())) {}

  T* panel_at(int64_t panel) const { return static_cast<T*>(packed_.address()) + panel * inner_ * width_; }
  int64_t columns_in(int64_t panel) const { return std::min(width_, columns_ - panel * width_); }

  /// Columns behind the last one of the matrix are zeros.
  void pack(const T* matrix, int64_t panel) const {
    const int64_t columns = columns_in(panel), row = transposed_ ? 1 : columns_,
                  column = transposed_ ? inner_ : 1;
    const T* from = matrix + panel * width_ * column;
    T* to = panel_at(panel);
    for (int64_t k = 0; k < inner_; ++k, from += row, to += width_) {
      for (int64_t j = 0; j < columns; ++j) to[j] = from[j * column];
      std::fill(to + columns, to + width_, T{});
    }
  }

  void multiply_by(int64_t panel, int64_t rows, const T* a, T* out) const {
    const int64_t columns = columns_in(panel);
    T* const target = out + panel * width_;
    PanelProduct<T> product{rows, width_, inner_, a, inner_, 1, panel_at(panel), width_, target, columns_};
    if (columns < width_) product.c = static_cast<T*>(last_.address()), product.ldc = width_;
    multiply(product);
    if (columns < width_)
      for (int64_t r = 0; r < rows; ++r) std::copy_n(product.c + r * width_, columns, target + r * columns_);
  }

  const int64_t inner_, columns_, width_, count_;
  const bool transposed_;
  Tensor packed_, last_;
};

}  // namespace

std::unique_ptr<PackedStepProduct> panel_step_product(const StepProductSizes& sizes, Workspace& workspace) {
  if (sizes.dtype == DType::float64) return std::make_unique<PanelStepProduct<double>>(sizes, workspace);
  return std::make_unique<PanelStepProduct<float>>(sizes, workspace);
}

int64_t panel_step_product_bytes(const StepProductSizes& sizes) {
  return sizes.dtype == DType::float64 ? PanelSizes<double>(sizes).bytes() : PanelSizes<float>(sizes).bytes();
}

}  // namespace espalier
