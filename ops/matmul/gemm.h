// General matrix multiplication by OpenBLAS or oneDNN.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "espalier/core/dtype.h"
#include "espalier/core/shape.h"

namespace espalier {

/// OpenBLAS, the sgemm of oneDNN, or a primitive of oneDNN (see gemm_primitive.h): its matmul of b as it is,
/// its matmul or its inner product of a packed b.
enum class GemmLibrary : uint8_t { openblas, onednn, onednn_matmul, onednn_packed, onednn_inner };
/// Returns true for those that read a packed b.
constexpr bool packs(GemmLibrary library) { return library >= GemmLibrary::onednn_packed; }
std::string_view name(GemmLibrary library);
/// The library for products that are computed once, which must not first generate code: OpenBLAS. On a
/// processor that is newer than it, OpenBLAS takes kernels for SSE3, and it is oneDNN, if that is built in.
GemmLibrary ready_library();

/// What a library may do with the product before it writes the result. run_gemm ignores it.
/// `accumulate`: adds the product to the output, by beta or from a separate buffer.
enum class GemmEpilogue : uint8_t { none, bias, bias_relu, accumulate };

/// c[m, n] = alpha · op(a) · op(b) + beta · c, row-major; a transposed operand is stored as [k, m] or [n, k].
/// Leading dimensions count elements. Sizes fit 31 bits. With beta 0 the old c is not read.
struct Gemm {
  DType dtype;
  bool transpose_a, transpose_b;
  int64_t m, n, k, lda, ldb, ldc;
  double alpha = 1, beta = 0;
  bool one_thread = false;  ///< else as many as are worthwhile for its size
  GemmEpilogue epilogue = GemmEpilogue::none;
  bool keeps_b = false;  ///< many products read the same b: it may be packed once. run_gemm ignores it.
};

/// Returns true if the product is too small for several threads.
bool on_one_thread(const Gemm& gemm);
struct GemmBatch;
/// Of so many threads, those that are worthwhile for all products of a batch together, in one call: its
/// `one_thread` is for calls of one product each.
int threads_for(const GemmBatch& product, int threads);
/// Limits OpenMP to one thread during its lifetime if the product is too small for several.
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

  [[maybe_unused]] int before_ = 0;  // unused without OpenMP
};

/// To be called in a thread before it calls OpenBLAS. Throws OutOfMemory, naming `op`, where OpenBLAS would
/// wait for memory for ever.
void prepare_openblas(std::string_view op);

/// Runs the gemm of a library; for its primitives, that of oneDNN. Without oneDNN, OpenBLAS runs all.
void run_gemm(const Gemm& gemm, const void* a, const void* b, void* c, GemmLibrary library);

/// Products of one form over the axes of `batch`. Matrices of `c` are contiguous; `a_steps` and `b_steps` are
/// the strides, in elements, between those of `a` and `b`: 0 where an axis is broadcast.
struct GemmBatch {
  Gemm gemm;
  Shape batch;
  Dims a_steps, b_steps;
};
/// The offsets of the matrices a and b of one product, in elements.
std::pair<int64_t, int64_t> starts_of(const GemmBatch& batch, int64_t index);
/// Returns true if `count` products should be divided among the threads, instead of each using all threads.
bool better_divided(const Gemm& gemm, int64_t count);
void run_gemm_batch(const GemmBatch& batch, const void* a, const void* b, void* c, GemmLibrary library);

}  // namespace espalier
