// The part of cuSOLVER's dense interface that the emulated device supports, with cuSOLVER's names and values.
#pragma once
#include "cublasLt.h"

typedef enum {
  CUSOLVER_STATUS_SUCCESS = 0,
  CUSOLVER_STATUS_NOT_INITIALIZED = 1,
  CUSOLVER_STATUS_ALLOC_FAILED = 2,
  CUSOLVER_STATUS_INVALID_VALUE = 3,
  CUSOLVER_STATUS_ARCH_MISMATCH = 4,
  CUSOLVER_STATUS_EXECUTION_FAILED = 6,
  CUSOLVER_STATUS_INTERNAL_ERROR = 7,
  CUSOLVER_STATUS_NOT_SUPPORTED = 9
} cusolverStatus_t;
typedef enum { CUSOLVER_EIG_MODE_NOVECTOR = 0, CUSOLVER_EIG_MODE_VECTOR = 1 } cusolverEigMode_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 } cublasFillMode_t;

struct cusolverDnContext;
typedef struct cusolverDnContext* cusolverDnHandle_t;

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream);

cusolverStatus_t cusolverDnSgetrf_bufferSize(cusolverDnHandle_t, int m, int n, float* a, int lda, int* lwork);
cusolverStatus_t cusolverDnDgetrf_bufferSize(cusolverDnHandle_t, int m, int n, double* a, int lda,
                                             int* lwork);
cusolverStatus_t cusolverDnSgetrf(cusolverDnHandle_t, int m, int n, float* a, int lda, float* workspace,
                                  int* pivots, int* info);
cusolverStatus_t cusolverDnDgetrf(cusolverDnHandle_t, int m, int n, double* a, int lda, double* workspace,
                                  int* pivots, int* info);
cusolverStatus_t cusolverDnSgetrs(cusolverDnHandle_t, cublasOperation_t, int n, int nrhs, const float* a,
                                  int lda, const int* pivots, float* b, int ldb, int* info);
cusolverStatus_t cusolverDnDgetrs(cusolverDnHandle_t, cublasOperation_t, int n, int nrhs, const double* a,
                                  int lda, const int* pivots, double* b, int ldb, int* info);
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, float* a, int lda,
                                             int* lwork);
cusolverStatus_t cusolverDnDpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, double* a, int lda,
                                             int* lwork);
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t, cublasFillMode_t, int n, float* a, int lda,
                                  float* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnDpotrf(cusolverDnHandle_t, cublasFillMode_t, int n, double* a, int lda,
                                  double* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnSgeqrf_bufferSize(cusolverDnHandle_t, int m, int n, float* a, int lda, int* lwork);
cusolverStatus_t cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t, int m, int n, double* a, int lda,
                                             int* lwork);
cusolverStatus_t cusolverDnSgeqrf(cusolverDnHandle_t, int m, int n, float* a, int lda, float* tau,
                                  float* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnDgeqrf(cusolverDnHandle_t, int m, int n, double* a, int lda, double* tau,
                                  double* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnSorgqr_bufferSize(cusolverDnHandle_t, int m, int n, int k, const float* a, int lda,
                                             const float* tau, int* lwork);
cusolverStatus_t cusolverDnDorgqr_bufferSize(cusolverDnHandle_t, int m, int n, int k, const double* a,
                                             int lda, const double* tau, int* lwork);
cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t, int m, int n, int k, float* a, int lda,
                                  const float* tau, float* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnDorgqr(cusolverDnHandle_t, int m, int n, int k, double* a, int lda,
                                  const double* tau, double* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnSgesvd_bufferSize(cusolverDnHandle_t, int m, int n, int* lwork);
cusolverStatus_t cusolverDnDgesvd_bufferSize(cusolverDnHandle_t, int m, int n, int* lwork);
cusolverStatus_t cusolverDnSgesvd(cusolverDnHandle_t, signed char jobu, signed char jobvt, int m, int n,
                                  float* a, int lda, float* s, float* u, int ldu, float* vt, int ldvt,
                                  float* workspace, int lwork, float* rwork, int* info);
cusolverStatus_t cusolverDnDgesvd(cusolverDnHandle_t, signed char jobu, signed char jobvt, int m, int n,
                                  double* a, int lda, double* s, double* u, int ldu, double* vt, int ldvt,
                                  double* workspace, int lwork, double* rwork, int* info);
cusolverStatus_t cusolverDnSsyevd_bufferSize(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n,
                                             const float* a, int lda, const float* w, int* lwork);
cusolverStatus_t cusolverDnDsyevd_bufferSize(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n,
                                             const double* a, int lda, const double* w, int* lwork);
cusolverStatus_t cusolverDnSsyevd(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n, float* a,
                                  int lda, float* w, float* workspace, int lwork, int* info);
cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n, double* a,
                                  int lda, double* w, double* workspace, int lwork, int* info);
