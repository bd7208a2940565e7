// Matrix products with the descriptors of cuBLASLt.
#pragma once
#include <cstdint>
#include <string>

#include "cublasLt.h"

struct cublasLtContext {
  int device;
};

struct cublasLtMatmulDesc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, transpose_c = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_stride = 0;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_stride = 0;
  int32_t sm_count = 0;
  int32_t aux_type = -1, bias_type = -1;  // -1: that of D
};

struct cublasLtMatrixLayout {
  uint32_t type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

struct cublasLtMatmulPreference {
  uint32_t search = 0;
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace emulated {

/// A product with its operands: all arguments of a call, by value.
struct Product {
  cublasLtMatmulDesc description;
  cublasLtMatrixLayout a, b, c, d;
  const void* a_data;
  const void* b_data;
  const void* c_data;
  void* d_data;
  double alpha, beta;  ///< read from host memory by the call
  const void* alpha_pointer;
  const void* beta_pointer;
  int splits;  ///< the number of partial sums
};

size_t bytes_of(uint32_t type);
/// Read and write a number of any of the types; `store` rounds to nearest.
double load(uint32_t type, const void* data, int64_t index);
void store(uint32_t type, void* data, int64_t index, double value);

bool adds_bias(uint32_t epilogue);
bool writes_bias_gradient(uint32_t epilogue);
bool is_relu(uint32_t epilogue);
bool is_gelu(uint32_t epilogue);
bool has_aux(uint32_t epilogue);
bool reads_aux(uint32_t epilogue);

void multiply(const Product& product);

}  // namespace emulated
