// What ops on batches of matrices share.
#pragma once
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/ops/linalg/matrix_layouts.h"
#include "espalier/ops/matmul/gemm.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

/// An op on the last axes of its inputs: as many as `matrix_axes` says, which are mixed.
class MatrixOp : public Op {
 public:
  explicit MatrixOp(const OpTraits& traits = {}) : Op(traits) {}
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return axis + matrix_axes(input) >= in[input]->shape.rank();
  }

 protected:
  virtual size_t matrix_axes(size_t /*input*/) const { return 2; }
};

/// Throws TypeError unless the elements are real, ShapeError unless there are two axes, and for `square` of
/// one size.
inline void check_matrix(const Spec& spec, std::string_view op, bool square) {
  check_dtype<Reals>(spec, op);
  const Shape& shape = spec.shape;
  if (shape.rank() < 2 || (square && shape[-1] != shape[-2]))
    throw ShapeError(fmt::format("{}: takes {} or batches of them, not {}", op,
                                 square ? "square matrices" : "matrices", shape.str()));
  if (std::max(shape[-1], shape[-2]) > INT32_MAX)
    throw UnsupportedError(fmt::format("{}: {} is more than the libraries can index", op, shape.str()));
}

/// Which matrix of a batch is meant by a number of the batch that it is broadcast to.
class BroadcastBatch {
 public:
  BroadcastBatch(const Shape& own, const Shape& all) : layout_(broadcast_layout(Layout(own), all)) {}
  int64_t operator()(int64_t number) const {
    int64_t at = 0;
    for (size_t axis = layout_.shape.rank(); axis-- > 0; number /= layout_.shape.dims()[axis])
      at += number % layout_.shape.dims()[axis] * layout_.strides[axis];
    return at;
  }

 private:
  Layout layout_;
};

/// "matrix [1, 2] of the batch [3, 4]", or "the matrix".
inline std::string name_of_matrix(const Shape& batch, int64_t number) {
  if (batch.rank() == 0) return "the matrix";
  Dims index(batch.rank(), 0);
  for (size_t axis = batch.rank(); axis-- > 0; number /= batch.dims()[axis])
    index[axis] = number % batch.dims()[axis];
  return fmt::format("matrix {} of the batch {}", Shape(std::move(index)).str(), batch.str());
}

/// Throws LinAlgError unless the diagonal of a Cholesky factor, `n` elements `step` apart, is finite:
/// routines take a NaN for a positive minor.
template <class T>
void check_cholesky_diagonal(const T* diagonal, int64_t step, int64_t n, const Shape& batch, int64_t number) {
  for (int64_t i = 0; i < n; ++i)
    if (!(diagonal[i * step] <= std::numeric_limits<T>::max()))
      throw LinAlgError(
          fmt::format("cholesky: {} is not positive definite: there is a NaN or an infinity in its lower "
                      "triangle, up to row {}",
                      name_of_matrix(batch, number), i));
}

/// Calls `f(i)` for each of `count` matrices, at `operations` each: small ones are divided among the threads,
/// and large ones use all threads in turn.
template <class F>
void each_matrix(std::string_view op, int64_t count, double operations, F&& f) {
  constexpr double worth_all_threads = 2e7, worth_one_thread = 2e6;
  if (operations >= worth_all_threads) {
    prepare_openblas(op);
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  const auto grain = static_cast<int64_t>(worth_one_thread / std::max(operations, 1.0));
  parallel_for(count, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    prepare_openblas(op);
    const GemmThreads one(1);
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Calls `f(TypeTag<T>{})` with float or double.
template <class F>
void visit_matrix(DType dtype, F&& f) {
  if (dtype == DType::float64)
    f(TypeTag<double>{});
  else
    f(TypeTag<float>{});
}

inline double cube(int64_t n) {
  return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

}  // namespace espalier
