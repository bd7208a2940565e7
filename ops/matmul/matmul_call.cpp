#include "espalier/ops/matmul/matmul_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/batch_axes.h"
#include "espalier/ops/matmul/bfloat16_product.h"
#include "espalier/ops/matmul/gemm_choice.h"

namespace espalier {

namespace {

constexpr int64_t most = largest_matrix_size;

/// A matrix in a buffer: its sizes, and how far apart its rows and its columns lie.
struct Matrix {
  int64_t rows, columns, down, across;
  /// The last two axes.
  Matrix(const Layout& layout, bool transposed) {
    const Dims &sizes = layout.shape.dims(), &strides = layout.strides;
    const size_t row = sizes.size() - (transposed ? 1 : 2), column = sizes.size() - (transposed ? 2 : 1);
    rows = sizes[row], columns = sizes[column], down = strides[row], across = strides[column];
  }
};

/// A matrix as a GEMM takes it: its leading dimension, and whether it lies transposed.
struct Stored {
  bool transposed;
  int64_t leading;
};
/// Nothing if neither axis steps by 1.
std::optional<Stored> stored(const Matrix& x) {
  const int64_t down = x.rows == 1 ? x.columns : x.down, across = x.columns == 1 ? x.rows : x.across;
  if ((x.across == 1 || x.columns == 1) && down >= x.columns && down <= most) return Stored{false, down};
  if ((x.down == 1 || x.rows == 1) && across >= x.rows && across <= most) return Stored{true, across};
  return std::nullopt;
}

/// How far apart the matrices of `x` lie along the axes of `batch`, to which they are broadcast.
Dims steps_along(const Shape& batch, const Layout& x) {
  Dims steps(batch.rank(), 0);
  const size_t missing = batch.rank() + 2 - x.shape.rank();
  for (size_t i = missing; i < batch.rank(); ++i)
    if (x.shape.dims()[i - missing] != 1) steps[i] = x.strides[i - missing];
  return steps;
}

/// Makes one product of a batch if one matrix is on the right of all, and the rows on the left follow each
/// other evenly.
bool fold_rows_of(Matrix left, GemmBatch& x) {
  for (size_t i = x.batch.rank(); i-- > 0;) {
    const int64_t size = x.batch.dims()[i];
    if (size == 1) continue;
    if (x.b_steps[i] != 0) return false;
    if (left.rows == 1)
      left.down = x.a_steps[i];
    else if (x.a_steps[i] != left.rows * left.down)
      return false;
    left.rows *= size;
  }
  const std::optional<Stored> lies = stored(left);
  if (!lies || left.rows > most) return false;
  x.gemm.m = left.rows, x.gemm.transpose_a = lies->transposed, x.gemm.lda = lies->leading;
  x.batch = Shape();
  return true;
}

}  // namespace

Shape matmul_batch_of(const Shape& shape) { return Shape(Dims(shape.begin(), shape.end() - 2)); }

bool gemm_takes(const Layout& layout, bool transposed) { return stored({layout, transposed}).has_value(); }

GemmBatch gemm_of(DType dtype, const Layout& a, const Layout& b, const Shape& out, MatmulForm form) {
  const Stored x = *stored({a, form.transpose_a}), y = *stored({b, form.transpose_b});
  const int64_t m = out.end()[-2], n = out.end()[-1], k = a.shape.end()[-1 - form.transpose_a];
  if (std::max({m, n, k}) > largest_matrix_size)
    throw UnsupportedError(fmt::format(
        "matmul: a product of [{}, {}] and [{}, {}] is more than the libraries can index", m, k, k, n));
  GemmBatch result{{dtype, x.transposed, y.transposed, m, n, k, x.leading, y.leading, n}, {}, {}, {}};
  if (out.rank() == 2) return result;
  result.batch = matmul_batch_of(out);
  result.a_steps = steps_along(result.batch, a);
  result.b_steps = steps_along(result.batch, b);
  if (!fold_rows_of({a, form.transpose_a}, result))
    result.gemm.one_thread = better_divided(result.gemm, result.batch.elements());
  return result;
}

namespace {

bool is_empty(const Gemm& g) { return g.m == 0 || g.n == 0 || g.k == 0; }

/// The most bytes of workspace that oneDNN's primitive for a product takes, over all numbers of threads that
/// a replica may have. 0 if no primitive computes the product.
int64_t primitive_bytes(const Gemm& gemm) {
  int64_t most = 0;
  const int all = num_threads();
  for (int replicas = 1, last = 0; replicas <= all; ++replicas) {
    const int threads = all / replicas;
    if (threads == std::exchange(last, threads) || !gemm_choices().may_be_primitive(gemm, threads)) continue;
    int64_t bytes = aligned_bytes(GemmPrimitive::scratch_bytes(gemm, threads));
    if (gemm.epilogue == GemmEpilogue::accumulate)
      bytes += Workspace::bytes_for({gemm.dtype, {gemm.m, gemm.n}});
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

int64_t product_workspace_bytes(const PlannedCall& call, MatmulForm form, const Shape& out,
                                GemmEpilogue epilogue, size_t first) {
  const bool on_cpu = call.device == DeviceType::cpu;
  const DType dtype = call.inputs[first]->dtype;
  if (on_cpu && is_half(dtype)) {
    const bool empty = out.elements() == 0 || call.inputs[first]->shape.elements() == 0;
    if (empty || first != 0 || epilogue != GemmEpilogue::none || !has_bfloat16_products(dtype)) return 0;
    return Bfloat16Product::workspace_bytes(call, form).value_or(0);  // without any they are widened
  }
  int64_t bytes = 0;
  const auto seen = [&](size_t input, bool transposed) {
    const Layout& layout = *call.layouts[input];
    if (gemm_takes(layout, transposed)) return layout;
    bytes += Workspace::bytes_for({dtype, layout.shape});
    return Layout(layout.shape);
  };
  const Layout a = seen(first, form.transpose_a), b = seen(first + 1, form.transpose_b);
  if (!on_cpu) {
    if (out.elements() == 0 || a.shape.end()[-1 - form.transpose_a] == 0) return bytes;
    const BatchCopies copies = batch_copies(dtype, a, b, out, form);
    if (copies.a) bytes += Workspace::bytes_for({dtype, a.shape});
    if (copies.b) bytes += Workspace::bytes_for({dtype, b.shape});
    return bytes;
  }
  GemmBatch product = gemm_of(dtype, a, b, out, form);
  if (product.batch.rank() > 0 || is_empty(product.gemm)) return bytes;
  product.gemm.epilogue = epilogue;
  return bytes + primitive_bytes(product.gemm);
}

MatmulCall::MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form, GemmEpilogue epilogue,
                       Workspace workspace, KeptValues* kept)
    : a_(&a), b_(&b), out_(&out), seen_a_(a), seen_b_(b), kept_(kept) {
  const auto copy = [&](const Tensor& x) { return workspace.take(x.shape(), x.dtype(), x.device()); };
  if (!gemm_takes(a.layout(), form.transpose_a)) seen_a_ = copy(a);
  if (!gemm_takes(b.layout(), form.transpose_b)) seen_b_ = copy(b);
  product_ = gemm_of(a.dtype(), seen_a_.layout(), seen_b_.layout(), out.shape(), form);
  const bool one = product_.batch.rank() == 0, plain_b = seen_b_.address() == b.address();
  if (one) product_.gemm.epilogue = epilogue;
  product_.gemm.keeps_b = one && plain_b && kept && may_pack(product_.gemm);
  const Gemm& g = product_.gemm;
  if (is_empty(g)) return;
  library_ = gemm_choices().measure(g);
  if (!one) return;
  if (packs(library_)) {
    primitive_.emplace(g, library_);
    const std::string key = fmt::format("{} {} {} ", b.address(), g.transpose_b, g.ldb);
    packed_ = kept_->of(key + primitive_->packed_layout(), primitive_->packed_bytes());
  } else if (library_ == GemmLibrary::onednn_matmul) {
    primitive_.emplace(g);
  } else {
    return;
  }
  if (const int64_t bytes = primitive_->scratch_bytes())
    scratch_ = workspace.take({bytes}, DType::boolean, out.device());
  if (epilogue == GemmEpilogue::accumulate) sum_ = workspace.take(out.shape(), out.dtype(), out.device());
}

void MatmulCall::run_with(const void* bias) {
  refresh();
  run_primitive(bias, *out_);
}

void MatmulCall::run_primitive(const void* bias, const Tensor& to) {
  const void* const b = packed_ ? packed_b() : seen_b_.address();
  watch_.run(!on_one_thread(product_.gemm), [&] {
    const GemmThreads threads(product_.gemm);
    primitive_->run(seen_a_.address(), b, bias, to.address(),
                    scratch_.defined() ? scratch_.address() : nullptr);
  });
}

/// Packs b again when leaves have changed.
const void* MatmulCall::packed_b() {
  packed_->update(kept_->version(), [&] { primitive_->pack(seen_b_.address(), packed_->address()); });
  return packed_->address();
}

void MatmulCall::refresh() {
  if (seen_a_.address() != a_->address()) copy_elements(*a_, seen_a_);
  if (seen_b_.address() != b_->address()) copy_elements(*b_, seen_b_);
}

void MatmulCall::run(double alpha, double beta) {
  if (primitive_ && alpha == 1 && beta == 0) return run_with(nullptr);
  refresh();
  if (sum_.defined()) {
    run_primitive(nullptr, sum_);
    add_scaled(sum_, alpha, *out_);
    return;
  }
  product_.gemm.alpha = alpha;
  product_.gemm.beta = beta;
  if (product_.batch.rank() == 0)
    watch_.run(!on_one_thread(product_.gemm), [&] {
      run_gemm(product_.gemm, seen_a_.address(), seen_b_.address(), out_->address(), library_);
    });
  else
    run_gemm_batch(product_, seen_a_.address(), seen_b_.address(), out_->address(), library_);
}

int64_t MatmulCall::rows_at_once(int64_t rows, int64_t tile) const {
  if (!tile || rows != product_.gemm.m * product_.batch.elements()) return 0;
  return best_range(tile);
}

int64_t MatmulCall::best_range(int64_t tile) const {
  const Gemm& g = product_.gemm;
  if (product_.batch.rank() > 0)
    return g.m % tile == 0 && product_.batch.elements() >= num_threads() ? g.m : 0;
  if (g.k <= 64) {
    // With so small a k, moving the product to memory and back dominates.
    constexpr int64_t range_bytes = 96 * 1024;
    const auto row_bytes = g.n * static_cast<int64_t>(size_of(g.dtype));
    return std::clamp<int64_t>(range_bytes / std::max<int64_t>(row_bytes, 1), 16, std::max<int64_t>(g.m, 16));
  }
  if (num_threads() > 1 && !on_one_thread(g) && !primitive_) return (g.m + num_threads() - 1) / num_threads();
  return 0;
}

void MatmulCall::run_one(int64_t index) const {
  const auto [from_a, from_b] = starts_of(product_, index);
  const auto bytes = static_cast<int64_t>(size_of(product_.gemm.dtype));
  Gemm one = product_.gemm;
  one.one_thread = true;
  run_gemm(one, static_cast<const char*>(seen_a_.address()) + from_a * bytes,
           static_cast<const char*>(seen_b_.address()) + from_b * bytes,
           static_cast<char*>(out_->address()) + index * one.m * one.ldc * bytes, library_);
}

void MatmulCall::run_rows(int64_t begin, int64_t end) const {
  if (product_.batch.rank() > 0) {
    for (; begin < end; begin += product_.gemm.m) run_one(begin / product_.gemm.m);
    return;
  }
  Gemm part = product_.gemm;
  const auto bytes = static_cast<int64_t>(size_of(part.dtype));
  part.m = end - begin;
  part.one_thread = true;
  const int64_t from_a = part.transpose_a ? begin : begin * part.lda;
  run_gemm(part, static_cast<const char*>(seen_a_.address()) + from_a * bytes, seen_b_.address(),
           static_cast<char*>(out_->address()) + begin * part.ldc * bytes, library_);
}

}  // namespace espalier
