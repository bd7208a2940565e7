// cuSOLVER's dense routines by LAPACK on the host, enqueued like kernels. A call must be made on the device
// of its handle; matrices, vectors and the workspace must lie in device memory, and leading dimensions fit.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cusolverDn.h"
#include "runtime.h"

struct cusolverDnContext {
  int device;
  cudaStream_t stream = nullptr;
  bool has_stream = false;
};

extern "C" {
void sgetrf_(const int*, const int*, float*, const int*, int*, int*);
void dgetrf_(const int*, const int*, double*, const int*, int*, int*);
void sgetrs_(const char*, const int*, const int*, const float*, const int*, const int*, float*, const int*,
             int*, size_t);
void dgetrs_(const char*, const int*, const int*, const double*, const int*, const int*, double*, const int*,
             int*, size_t);
void spotrf_(const char*, const int*, float*, const int*, int*, size_t);
void dpotrf_(const char*, const int*, double*, const int*, int*, size_t);
void sgeqrf_(const int*, const int*, float*, const int*, float*, float*, const int*, int*);
void dgeqrf_(const int*, const int*, double*, const int*, double*, double*, const int*, int*);
void sorgqr_(const int*, const int*, const int*, float*, const int*, const float*, float*, const int*, int*);
void dorgqr_(const int*, const int*, const int*, double*, const int*, const double*, double*, const int*,
             int*);
void sgesvd_(const char*, const char*, const int*, const int*, float*, const int*, float*, float*, const int*,
             float*, const int*, float*, const int*, int*, size_t, size_t);
void dgesvd_(const char*, const char*, const int*, const int*, double*, const int*, double*, double*,
             const int*, double*, const int*, double*, const int*, int*, size_t, size_t);
void ssyev_(const char*, const char*, const int*, float*, const int*, float*, float*, const int*, int*,
            size_t, size_t);
void dsyev_(const char*, const char*, const int*, double*, const int*, double*, double*, const int*, int*,
            size_t, size_t);
}

// OpenMP's, where OpenBLAS brings it.
extern "C" {
__attribute__((weak)) int omp_get_max_threads(void);
__attribute__((weak)) void omp_set_num_threads(int);
}

namespace emulated {
namespace {

/// While it lives, OpenBLAS computes in the calling thread: device memory is open to this one alone.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads ? omp_get_max_threads() : 1) { set(1); }
  ~OneThread() { set(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set(int threads) {
    if (omp_set_num_threads) omp_set_num_threads(threads);
  }
  int before_;
};

/// Elements of the workspace that every routine asks for, whatever its sizes are.
constexpr int workspace_of(int m, int n) { return 7 + m + 3 * n; }

/// Device memory that a routine reads or writes.
struct Range {
  const void* pointer;
  size_t bytes;
  const char* name;
};
template <class T>
Range matrix(const T* a, int rows, int columns, int lda, const char* name) {
  const size_t elements =
      rows > 0 && columns > 0
          ? static_cast<size_t>(lda) * static_cast<size_t>(columns - 1) + static_cast<size_t>(rows)
          : 0;
  return {a, elements * sizeof(T), name};
}
template <class T>
Range vector(const T* x, int elements, const char* name) {
  return {x, static_cast<size_t>(std::max(elements, 0)) * sizeof(T), name};
}

bool fits(int rows, int lda) { return rows >= 0 && lda >= std::max(rows, 1); }

/// Enqueues `routine`, which returns LAPACK's info. `workspace` is overwritten before.
template <class T, class F>
cusolverStatus_t solve(const char* function, cusolverDnHandle_t handle, std::vector<Range> ranges,
                       T* workspace, int lwork, int* info, F routine) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  ranges.push_back(vector(workspace, lwork, "the workspace"));
  ranges.push_back(vector(info, 1, "info"));
  const cudaError_t error = api(function, Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (handle->device != this_thread.device)
      return r.complain(cudaErrorInvalidDevice,
                        "a handle of cuSOLVER is used on another device than its own");
    if (!handle->has_stream)
      return r.complain(cudaErrorInvalidResourceHandle, "a handle of cuSOLVER has no stream");
    // The real library may allocate memory and wait for the stream.
    if (const cudaError_t forbidden = r.forbid_in_capture(); forbidden != cudaSuccess) return forbidden;
    return enqueue_kernel(
        r, call, handle->stream, [&r, function, ranges, workspace, lwork, info, routine]() -> std::string {
          for (const Range& range : ranges)
            if (range.bytes > 0 && r.find(range.pointer, range.bytes) == nullptr)
              return std::string(function) + ": " + range.name + " lies beyond its memory";
          if (lwork > 0)
            std::memset(static_cast<void*>(workspace), 0xA5, static_cast<size_t>(lwork) * sizeof(T));
          const OneThread here;
          *info = routine();
          return {};
        });
  });
  return error == cudaSuccess ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_EXECUTION_FAILED;
}

/// Calls a routine of LAPACK with workspace of its own.
template <class T, class F>
int with_workspace(F&& f) {
  T best = 0;
  int size = -1;
  f(&best, &size);
  size = static_cast<int>(static_cast<double>(best) * 1.001) + 64;
  std::vector<T> work(static_cast<size_t>(size));
  return f(work.data(), &size);
}

cusolverStatus_t answer(cusolverDnHandle_t handle, bool valid, int* lwork, int m, int n) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  if (!valid || lwork == nullptr || m < 0 || n < 0) return CUSOLVER_STATUS_INVALID_VALUE;
  *lwork = workspace_of(m, n);
  return CUSOLVER_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  if (handle == nullptr) return CUSOLVER_STATUS_INVALID_VALUE;
  if (runtime().devices.empty()) return CUSOLVER_STATUS_NOT_INITIALIZED;
  *handle = new cusolverDnContext{this_thread.device};
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  delete handle;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  handle->has_stream = true;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSgetrf_bufferSize(cusolverDnHandle_t handle, int m, int n, float*, int lda,
                                             int* lwork) {
  return answer(handle, fits(m, lda), lwork, m, n);
}
cusolverStatus_t cusolverDnSgetrf(cusolverDnHandle_t handle, int m, int n, float* a, int lda,
                                  float* workspace, int* pivots, int* info) {
  if (n < 0 || !fits(m, lda)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"),
                                  vector(pivots, std::min(m, n), "pivots")};
  return solve("cusolverDnSgetrf", handle, ranges, workspace, workspace_of(m, n), info, [=] {
    int found = 0;
    sgetrf_(&m, &n, a, &lda, pivots, &found);
    return found;
  });
}
cusolverStatus_t cusolverDnSgetrs(cusolverDnHandle_t handle, cublasOperation_t operation, int n, int nrhs,
                                  const float* a, int lda, const int* pivots, float* b, int ldb, int* info) {
  if (nrhs < 0 || !fits(n, lda) || !fits(n, ldb)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, n, n, lda, "the matrix"), vector(pivots, n, "pivots"),
                                  matrix(b, n, nrhs, ldb, "the right side")};
  return solve<float>("cusolverDnSgetrs", handle, ranges, nullptr, 0, info, [=] {
    int found = 0;
    sgetrs_(operation == CUBLAS_OP_N ? "N" : "T", &n, &nrhs, a, &lda, pivots, b, &ldb, &found, 1);
    return found;
  });
}
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t, int n, float*,
                                             int lda, int* lwork) {
  return answer(handle, fits(n, lda), lwork, n, n);
}
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, float* a,
                                  int lda, float* workspace, int lwork, int* info) {
  if (!fits(n, lda) || lwork < workspace_of(n, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  return solve("cusolverDnSpotrf", handle, {matrix(a, n, n, lda, "the matrix")}, workspace, lwork, info, [=] {
    int found = 0;
    spotrf_(triangle == CUBLAS_FILL_MODE_UPPER ? "U" : "L", &n, a, &lda, &found, 1);
    return found;
  });
}
cusolverStatus_t cusolverDnSgeqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, float*, int lda,
                                             int* lwork) {
  return answer(handle, fits(m, lda), lwork, m, n);
}
cusolverStatus_t cusolverDnSgeqrf(cusolverDnHandle_t handle, int m, int n, float* a, int lda, float* tau,
                                  float* workspace, int lwork, int* info) {
  if (n < 0 || !fits(m, lda) || lwork < workspace_of(m, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(tau, std::min(m, n), "tau")};
  return solve("cusolverDnSgeqrf", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<float>([=](float* work, const int* size) {
      int found = 0;
      sgeqrf_(&m, &n, a, &lda, tau, work, size, &found);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnSorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const float*,
                                             int lda, const float*, int* lwork) {
  return answer(handle, fits(m, lda) && n <= m && k <= n && k >= 0, lwork, m, n);
}
cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t handle, int m, int n, int k, float* a, int lda,
                                  const float* tau, float* workspace, int lwork, int* info) {
  if (n < 0 || n > m || k < 0 || k > n || !fits(m, lda) || lwork < workspace_of(m, n))
    return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(tau, k, "tau")};
  return solve("cusolverDnSorgqr", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<float>([=](float* work, const int* size) {
      int found = 0;
      sorgqr_(&m, &n, &k, a, &lda, tau, work, size, &found);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnSgesvd_bufferSize(cusolverDnHandle_t handle, int m, int n, int* lwork) {
  return answer(handle, m >= n, lwork, m, n);
}
cusolverStatus_t cusolverDnSgesvd(cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m,
                                  int n, float* a, int lda, float* s, float* u, int ldu, float* vt, int ldvt,
                                  float* workspace, int lwork, float*, int* info) {
  const bool vectors = jobu == 'S';
  if (m < n || n < 0 || !fits(m, lda) || !fits(m, ldu) || !fits(n, ldvt) || lwork < workspace_of(m, n) ||
      (jobu != 'S' && jobu != 'N') || jobu != jobvt)
    return CUSOLVER_STATUS_INVALID_VALUE;
  std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(s, n, "the singular values")};
  if (vectors) {
    ranges.push_back(matrix(u, m, n, ldu, "u"));
    ranges.push_back(matrix(vt, n, n, ldvt, "vt"));
  }
  return solve("cusolverDnSgesvd", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<float>([=](float* work, const int* size) {
      int found = 0;
      const char* const job = vectors ? "S" : "N";
      sgesvd_(job, job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, size, &found, 1, 1);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnSsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t, cublasFillMode_t,
                                             int n, const float*, int lda, const float*, int* lwork) {
  return answer(handle, fits(n, lda), lwork, n, n);
}
cusolverStatus_t cusolverDnSsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode,
                                  cublasFillMode_t triangle, int n, float* a, int lda, float* w,
                                  float* workspace, int lwork, int* info) {
  if (!fits(n, lda) || lwork < workspace_of(n, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, n, n, lda, "the matrix"), vector(w, n, "the eigenvalues")};
  return solve("cusolverDnSsyevd", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<float>([=](float* work, const int* size) {
      int found = 0;
      ssyev_(mode == CUSOLVER_EIG_MODE_VECTOR ? "V" : "N", triangle == CUBLAS_FILL_MODE_UPPER ? "U" : "L", &n,
             a, &lda, w, work, size, &found, 1, 1);
      return found;
    });
  });
}

cusolverStatus_t cusolverDnDgetrf_bufferSize(cusolverDnHandle_t handle, int m, int n, double*, int lda,
                                             int* lwork) {
  return answer(handle, fits(m, lda), lwork, m, n);
}
cusolverStatus_t cusolverDnDgetrf(cusolverDnHandle_t handle, int m, int n, double* a, int lda,
                                  double* workspace, int* pivots, int* info) {
  if (n < 0 || !fits(m, lda)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"),
                                  vector(pivots, std::min(m, n), "pivots")};
  return solve("cusolverDnDgetrf", handle, ranges, workspace, workspace_of(m, n), info, [=] {
    int found = 0;
    dgetrf_(&m, &n, a, &lda, pivots, &found);
    return found;
  });
}
cusolverStatus_t cusolverDnDgetrs(cusolverDnHandle_t handle, cublasOperation_t operation, int n, int nrhs,
                                  const double* a, int lda, const int* pivots, double* b, int ldb,
                                  int* info) {
  if (nrhs < 0 || !fits(n, lda) || !fits(n, ldb)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, n, n, lda, "the matrix"), vector(pivots, n, "pivots"),
                                  matrix(b, n, nrhs, ldb, "the right side")};
  return solve<double>("cusolverDnDgetrs", handle, ranges, nullptr, 0, info, [=] {
    int found = 0;
    dgetrs_(operation == CUBLAS_OP_N ? "N" : "T", &n, &nrhs, a, &lda, pivots, b, &ldb, &found, 1);
    return found;
  });
}
cusolverStatus_t cusolverDnDpotrf_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t, int n, double*,
                                             int lda, int* lwork) {
  return answer(handle, fits(n, lda), lwork, n, n);
}
cusolverStatus_t cusolverDnDpotrf(cusolverDnHandle_t handle, cublasFillMode_t triangle, int n, double* a,
                                  int lda, double* workspace, int lwork, int* info) {
  if (!fits(n, lda) || lwork < workspace_of(n, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  return solve("cusolverDnDpotrf", handle, {matrix(a, n, n, lda, "the matrix")}, workspace, lwork, info, [=] {
    int found = 0;
    dpotrf_(triangle == CUBLAS_FILL_MODE_UPPER ? "U" : "L", &n, a, &lda, &found, 1);
    return found;
  });
}
cusolverStatus_t cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, double*, int lda,
                                             int* lwork) {
  return answer(handle, fits(m, lda), lwork, m, n);
}
cusolverStatus_t cusolverDnDgeqrf(cusolverDnHandle_t handle, int m, int n, double* a, int lda, double* tau,
                                  double* workspace, int lwork, int* info) {
  if (n < 0 || !fits(m, lda) || lwork < workspace_of(m, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(tau, std::min(m, n), "tau")};
  return solve("cusolverDnDgeqrf", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<double>([=](double* work, const int* size) {
      int found = 0;
      dgeqrf_(&m, &n, a, &lda, tau, work, size, &found);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnDorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const double*,
                                             int lda, const double*, int* lwork) {
  return answer(handle, fits(m, lda) && n <= m && k <= n && k >= 0, lwork, m, n);
}
cusolverStatus_t cusolverDnDorgqr(cusolverDnHandle_t handle, int m, int n, int k, double* a, int lda,
                                  const double* tau, double* workspace, int lwork, int* info) {
  if (n < 0 || n > m || k < 0 || k > n || !fits(m, lda) || lwork < workspace_of(m, n))
    return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(tau, k, "tau")};
  return solve("cusolverDnDorgqr", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<double>([=](double* work, const int* size) {
      int found = 0;
      dorgqr_(&m, &n, &k, a, &lda, tau, work, size, &found);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnDgesvd_bufferSize(cusolverDnHandle_t handle, int m, int n, int* lwork) {
  return answer(handle, m >= n, lwork, m, n);
}
cusolverStatus_t cusolverDnDgesvd(cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m,
                                  int n, double* a, int lda, double* s, double* u, int ldu, double* vt,
                                  int ldvt, double* workspace, int lwork, double*, int* info) {
  const bool vectors = jobu == 'S';
  if (m < n || n < 0 || !fits(m, lda) || !fits(m, ldu) || !fits(n, ldvt) || lwork < workspace_of(m, n) ||
      (jobu != 'S' && jobu != 'N') || jobu != jobvt)
    return CUSOLVER_STATUS_INVALID_VALUE;
  std::vector<Range> ranges{matrix(a, m, n, lda, "the matrix"), vector(s, n, "the singular values")};
  if (vectors) {
    ranges.push_back(matrix(u, m, n, ldu, "u"));
    ranges.push_back(matrix(vt, n, n, ldvt, "vt"));
  }
  return solve("cusolverDnDgesvd", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<double>([=](double* work, const int* size) {
      int found = 0;
      const char* const job = vectors ? "S" : "N";
      dgesvd_(job, job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, size, &found, 1, 1);
      return found;
    });
  });
}
cusolverStatus_t cusolverDnDsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t, cublasFillMode_t,
                                             int n, const double*, int lda, const double*, int* lwork) {
  return answer(handle, fits(n, lda), lwork, n, n);
}
cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode,
                                  cublasFillMode_t triangle, int n, double* a, int lda, double* w,
                                  double* workspace, int lwork, int* info) {
  if (!fits(n, lda) || lwork < workspace_of(n, n)) return CUSOLVER_STATUS_INVALID_VALUE;
  const std::vector<Range> ranges{matrix(a, n, n, lda, "the matrix"), vector(w, n, "the eigenvalues")};
  return solve("cusolverDnDsyevd", handle, ranges, workspace, lwork, info, [=] {
    return with_workspace<double>([=](double* work, const int* size) {
      int found = 0;
      dsyev_(mode == CUSOLVER_EIG_MODE_VECTOR ? "V" : "N", triangle == CUBLAS_FILL_MODE_UPPER ? "U" : "L", &n,
             a, &lda, w, work, size, &found, 1, 1);
      return found;
    });
  });
}
