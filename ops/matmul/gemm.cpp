#include "espalier/ops/matmul/gemm.h"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/mman.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstring>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/ops/matmul/onednn_gemm.h"

namespace espalier {

namespace {

/// OpenBLAS built on pthreads fights with OpenMP for the cores; such a build is run on one thread.
void tame_openblas() {
  static const bool once = [] {
    if (openblas_get_parallel() == OPENBLAS_THREAD) openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

/// OpenBLAS tries for ever to have memory for a thread's buffers, so the first product of each thread tries
/// it. Throws OutOfMemory.
void check_memory_for_openblas(std::string_view op) {
  static thread_local bool has_some = false;
  if (has_some) return;
  constexpr size_t bytes = size_t{128} << 20;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory(
        fmt::format("{}: the system has no memory for OpenBLAS, which wants 128 MiB for each thread", op));
  munmap(memory, bytes);
  has_some = true;
}

double operations(const Gemm& g) {
  return 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

constexpr double worth_a_thread = 4e6;  // operations, some 40 µs

}  // namespace

bool on_one_thread(const Gemm& g) { return g.one_thread || operations(g) < worth_a_thread; }

int threads_for(const GemmBatch& x, int threads) {
  if (x.batch.rank() == 0) return on_one_thread(x.gemm) ? 1 : threads;
  return operations(x.gemm) * static_cast<double>(x.batch.elements()) < worth_a_thread ? 1 : threads;
}

std::string_view name(GemmLibrary library) {
  switch (library) {
    case GemmLibrary::openblas: return "OpenBLAS";
    case GemmLibrary::onednn: return "oneDNN";
    case GemmLibrary::onednn_matmul: return "oneDNN-matmul";
    case GemmLibrary::onednn_packed: return "oneDNN-packed";
    case GemmLibrary::onednn_inner: return "oneDNN-inner-product";
  }
  return "";
}

GemmLibrary ready_library() {
  static const bool is_known = !has_onednn() || vector_level() == VectorLevel::baseline ||
                               std::string_view(openblas_get_corename()) != "Prescott";  // its last resort
  return is_known ? GemmLibrary::openblas : GemmLibrary::onednn;
}

// Both libraries ask OpenMP.
GemmThreads::GemmThreads(const Gemm& gemm) {
  if (on_one_thread(gemm)) use(1);
}
GemmThreads::GemmThreads(int threads) { use(threads); }
void GemmThreads::use([[maybe_unused]] int threads) {
#ifdef _OPENMP
  if (omp_get_max_threads() == threads) return;
  before_ = omp_get_max_threads();
  omp_set_num_threads(threads);
#endif
}
GemmThreads::~GemmThreads() {
#ifdef _OPENMP
  if (before_) omp_set_num_threads(before_);
#endif
}

void prepare_openblas(std::string_view op) {
  tame_openblas();
  check_memory_for_openblas(op);
}

void run_gemm(const Gemm& g, const void* a, const void* b, void* c, GemmLibrary library) {
  if (g.k == 0 || g.m == 0 || g.n == 0) {
    const auto size = static_cast<int64_t>(size_of(g.dtype));
    for (int64_t row = 0; row < g.m && g.beta == 0; ++row)
      std::memset(static_cast<char*>(c) + row * g.ldc * size, 0, static_cast<size_t>(g.n * size));
    return;
  }
  const GemmThreads threads(g);
  const auto ta = g.transpose_a ? CblasTrans : CblasNoTrans, tb = g.transpose_b ? CblasTrans : CblasNoTrans;
  const auto m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const auto lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb), ldc = static_cast<int>(g.ldc);
  if (g.dtype == DType::float64) {
    prepare_openblas("matmul");
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, g.alpha, static_cast<const double*>(a), lda,
                static_cast<const double*>(b), ldb, g.beta, static_cast<double*>(c), ldc);
  } else if (library == GemmLibrary::openblas || !has_onednn()) {
    prepare_openblas("matmul");
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, static_cast<float>(g.alpha), static_cast<const float*>(a),
                lda, static_cast<const float*>(b), ldb, static_cast<float>(g.beta), static_cast<float*>(c),
                ldc);
  } else {
    run_onednn_gemm(g, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
  }
}

bool better_divided(const Gemm& gemm, int64_t count) {
  constexpr double large = 1e8;  // operations; such a product keeps all threads busy by itself
  return count >= num_threads() && operations(gemm) < large;
}

std::pair<int64_t, int64_t> starts_of(const GemmBatch& x, int64_t index) {
  int64_t a = 0, b = 0;
  for (size_t axis = x.batch.rank(); axis-- > 0; index /= x.batch.dims()[axis]) {
    const int64_t at = index % x.batch.dims()[axis];
    a += at * x.a_steps[axis];
    b += at * x.b_steps[axis];
  }
  return {a, b};
}

void run_gemm_batch(const GemmBatch& x, const void* a, const void* b, void* c, GemmLibrary library) {
  const auto size = static_cast<int64_t>(size_of(x.gemm.dtype)), count = x.batch.elements();
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [from_a, from_b] = starts_of(x, i);
      run_gemm(x.gemm, static_cast<const char*>(a) + from_a * size,
               static_cast<const char*>(b) + from_b * size,
               static_cast<char*>(c) + i * x.gemm.m * x.gemm.ldc * size, library);
    }
  };
  if (!x.gemm.one_thread) return run(0, count);
  parallel_for(count, std::max(int64_t{1}, static_cast<int64_t>(worth_a_thread / 2 / operations(x.gemm))),
               run);
}

}  // namespace espalier
