#include "espalier/ops/matmul/matmul_call.h"

#include <algorithm>

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

/// The product of two matrices, the first of a batch. Operands whose strides a GEMM cannot take are
/// replaced by copies.
Gemm one_product(Tensor& a, Tensor& b, const Tensor& out, bool ta, bool tb) {
  std::optional<Stored> x = stored({a.layout(), ta}), y = stored({b.layout(), tb});
  if (!x) a = a.clone(), x = stored({a.layout(), ta});
  if (!y) b = b.clone(), y = stored({b.layout(), tb});
  const int64_t m = out.shape().end()[-2], n = out.shape().end()[-1], k = a.shape().end()[-1 - ta];
  return {a.dtype(), x->transposed, y->transposed, m, n, k, x->leading, y->leading, n};
}

/// All products, or one in their place.
GemmBatch batch_of_products(const Gemm& gemm, const Tensor& a, const Tensor& b, const Tensor& out, bool ta) {
  GemmBatch result{gemm, matmul_batch_of(out.shape()), {}, {}};
  result.a_steps = steps_along(result.batch, a.layout());
  result.b_steps = steps_along(result.batch, b.layout());
  if (fold_rows_of({a.layout(), ta}, result)) return result;
  result.gemm.one_thread = better_divided(gemm, result.batch.elements());
  return result;
}

MatmulCall::MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, bool transpose_a, bool transpose_b,
                       GemmEpilogue epilogue)
    : a_(&a), b_(&b), out_(&out), seen_a_(a), seen_b_(b) {
  product_.gemm = one_product(seen_a_, seen_b_, out, transpose_a, transpose_b);
  if (out.rank() > 2) product_ = batch_of_products(product_.gemm, seen_a_, seen_b_, out, transpose_a);
  if (product_.batch.rank() == 0) product_.gemm.epilogue = epilogue;
  const Gemm& g = product_.gemm;
  if (g.m == 0 || g.n == 0 || g.k == 0) return;
  library_ = gemm_choices().measure(g);
  if (library_ == GemmLibrary::onednn_matmul && product_.batch.rank() == 0) primitive_.emplace(product_.gemm);
  if (primitive_ && epilogue == GemmEpilogue::accumulate) sum_ = Tensor(out.shape(), out.dtype());
}

void MatmulCall::run_with(const void* bias) {
  refresh();
  const GemmThreads threads(product_.gemm);
  primitive_->run(seen_a_.address(), seen_b_.address(), bias, out_->address());
}

void MatmulCall::refresh() {
  if (seen_a_.address() != a_->address()) copy_elements(*a_, seen_a_);
  if (seen_b_.address() != b_->address()) copy_elements(*b_, seen_b_);
}

void MatmulCall::run(double alpha, double beta) {
  if (primitive_ && alpha == 1 && beta == 0) return run_with(nullptr);
  refresh();
  if (sum_.defined()) {
    const GemmThreads threads(product_.gemm);
    primitive_->run(seen_a_.address(), seen_b_.address(), nullptr, sum_.address());
    add_scaled(sum_, alpha, *out_);
    return;
  }
  product_.gemm.alpha = alpha;
  product_.gemm.beta = beta;
  if (product_.batch.rank() == 0)
    run_gemm(product_.gemm, seen_a_.address(), seen_b_.address(), out_->address(), library_);
  else
    run_gemm_batch(product_, seen_a_.address(), seen_b_.address(), out_->address(), library_);
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
  Gemm part = product_.gemm;
  const auto bytes = static_cast<int64_t>(size_of(part.dtype));
  part.m = end - begin;
  part.one_thread = true;
  const int64_t from_a = part.transpose_a ? begin : begin * part.lda;
  run_gemm(part, static_cast<const char*>(seen_a_.address()) + from_a * bytes, seen_b_.address(),
           static_cast<char*>(out_->address()) + begin * part.ldc * bytes, library_);
}

}  // namespace espalier
