// General matrix multiplication by the libraries that do it best.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "espalier/core/dtype.h"
#include "espalier/core/shape.h"

namespace espalier {

/// OpenBLAS, oneDNN's sgemm, or a primitive of oneDNN's (see gemm_primitive.h).
enum class GemmLibrary : uint8_t { openblas, onednn, onednn_matmul };
std::string_view name(GemmLibrary library);

/// What a library may do with the product while it is at hand. run_gemm leaves it to others.
/// `accumulate`: it is added to what is there, by beta, or from a buffer of its own.
enum class GemmEpilogue : uint8_t { none, bias, bias_relu, accumulate };

/// c[m, n] = alpha · op(a) · op(b) + beta · c, row-major; a transposed operand is stored as [k, m] or [n, k].
/// Leading dimensions count elements. Sizes fit 31 bits. With beta 0 the old c is not read.
struct Gemm {
  DType dtype;
  bool transpose_a, transpose_b;
  int64_t m, n, k, lda, ldb, ldc;
  double alpha = 1, beta = 0;
  bool one_thread = false;  ///< or as many as pay for such a product
  GemmEpilogue epilogue = GemmEpilogue::none;
};

/// Whether waking a second thread for it would cost more than it does.
bool on_one_thread(const Gemm& gemm);
/// While it lives, OpenMP gives the libraries no more threads than pay.
class GemmThreads {
 public:
  explicit GemmThreads(const Gemm& gemm);
  /// So many.
  explicit GemmThreads(int threads);
  ~GemmThreads();
  GemmThreads(const GemmThreads&) = delete;
  GemmThreads& operator=(const GemmThreads&) = delete;

 private:
  void use(int threads);

  int before_ = 0;
};

/// By one of the libraries' sgemm; a product that has a primitive is oneDNN's here.
void run_gemm(const Gemm& gemm, const void* a, const void* b, void* c, GemmLibrary library);

/// Products of one form over the axes of `batch`. Matrices of `c` lie one after another; those of `a` and `b`
/// are as many elements apart as `a_steps` and `b_steps` say, 0 where one serves the whole axis.
struct GemmBatch {
  Gemm gemm;
  Shape batch;
  Dims a_steps, b_steps;
};
/// Where the matrices of one product begin, in elements.
std::pair<int64_t, int64_t> starts_of(const GemmBatch& batch, int64_t index);
/// Whether so many products are better divided over threads than computed one after another by all threads.
bool better_divided(const Gemm& gemm, int64_t count);
void run_gemm_batch(const GemmBatch& batch, const void* a, const void* b, void* c, GemmLibrary library);

}  // namespace espalier
