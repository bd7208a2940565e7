// cuBLASLt: descriptors, the heuristic with the conditions of the real library, and products that are
// enqueued like kernels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cublaslt_rules.h"
#include "matmul.h"
#include "runtime.h"

namespace emulated {
namespace {

/// The contents of cublasLtMatmulAlgo_t, which is valid for one problem.
struct Algorithm {
  uint64_t magic, problem, splits, alignment, workspace, reserved[3];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t magic = 0x656d756c61746564;

cublasStatus_t injected(const char* function, cublasStatus_t status) {
  Runtime& r = runtime();
  const Call call;
  cudaError_t ignored = cudaSuccess;
  return r.inject(function, ignored) ? status : CUBLAS_STATUS_SUCCESS;
}

struct Attribute {
  void* field;
  size_t bytes;
};
template <class T>
Attribute attribute(T& field) {
  return {&field, sizeof(T)};
}

cublasStatus_t set(const Attribute& a, const void* value, size_t bytes) {
  if (a.field == nullptr || value == nullptr || bytes != a.bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(a.field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t get(const Attribute& a, void* value, size_t bytes, size_t* written) {
  if (a.field == nullptr || (bytes == 0 && written == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && (value == nullptr || bytes != a.bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0) std::memcpy(value, a.field, bytes);
  if (written != nullptr) *written = a.bytes;
  return CUBLAS_STATUS_SUCCESS;
}

Attribute field(cublasLtMatmulDesc& d, cublasLtMatmulDescAttributes_t name) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return attribute(d.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return attribute(d.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return attribute(d.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return attribute(d.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return attribute(d.transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC: return attribute(d.transpose_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return attribute(d.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return attribute(d.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return attribute(d.bias_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return attribute(d.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return attribute(d.aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return attribute(d.aux_stride);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return attribute(d.sm_count);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return attribute(d.aux_type);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return attribute(d.bias_type);
  }
  return {nullptr, 0};
}
Attribute field(cublasLtMatrixLayout& m, cublasLtMatrixLayoutAttribute_t name) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return attribute(m.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return attribute(m.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return attribute(m.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return attribute(m.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD: return attribute(m.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return attribute(m.batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return attribute(m.stride);
  }
  return {nullptr, 0};
}
Attribute field(cublasLtMatmulPreference& p, cublasLtMatmulPreferenceAttributes_t name) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return attribute(p.search);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return attribute(p.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return attribute(p.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return attribute(p.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return attribute(p.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return attribute(p.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return attribute(p.alignment_d);
  }
  return {nullptr, 0};
}

/// A hash of the properties of a problem on which its algorithms depend.
uint64_t fingerprint(const Product& p) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto mix = [&](uint64_t x) { hash = (hash ^ x) * 0x100000001b3ull; };
  const cublasLtMatmulDesc& d = p.description;
  for (const auto x : {static_cast<int64_t>(d.compute), static_cast<int64_t>(d.scale), int64_t{d.transpose_a},
                       int64_t{d.transpose_b}, static_cast<int64_t>(d.epilogue)})
    mix(static_cast<uint64_t>(x));
  for (const cublasLtMatrixLayout* m : {&p.a, &p.b, &p.c, &p.d}) {
    mix(m->type), mix(static_cast<uint64_t>(m->order)), mix(m->rows), mix(m->cols);
    mix(static_cast<uint64_t>(m->ld)), mix(static_cast<uint64_t>(m->batch));
  }
  return hash;
}

Product problem(const cublasLtMatmulDesc& description, const cublasLtMatrixLayout& a,
                const cublasLtMatrixLayout& b, const cublasLtMatrixLayout& c, const cublasLtMatrixLayout& d) {
  return {description, a, b, c, d, nullptr, nullptr, nullptr, nullptr, 1, 0, nullptr, nullptr, 1};
}

/// The algorithms for a problem, the best first: one that requires 16-byte alignment, one that adds up two
/// halves in the workspace, and one for any data.
std::vector<Algorithm> algorithms(const Product& p, const cublasLtMatmulPreference& preference) {
  std::vector<Algorithm> found;
  const std::pair<uint32_t, uint32_t> alignments[] = {{preference.alignment_a, p.a.type},
                                                      {preference.alignment_b, p.b.type},
                                                      {preference.alignment_c, p.c.type},
                                                      {preference.alignment_d, p.d.type}};
  uint64_t alignment = 16;
  for (const auto& [bytes, type] : alignments) {
    if (bytes < bytes_of(type)) return found;
    alignment = std::min<uint64_t>(alignment, bytes);
  }
  const uint64_t print = fingerprint(p);
  const uint64_t workspace = p.d.rows * p.d.cols * static_cast<uint64_t>(p.d.batch) * 8;
  if (alignment == 16) found.push_back({magic, print, 1, 16, 0, {}});
  if (workspace <= preference.workspace &&
      (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0)
    found.push_back({magic, print, 2, 1, workspace, {}});
  found.push_back({magic, print, 1, 1, 0, {}});
  return found;
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

cublasStatus_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = injected("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (runtime().devices.empty()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{this_thread.device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
size_t cublasLtGetVersion() { return 130000; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *description = new cublasLtMatmulDesc{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t name, const void* value,
                                              size_t bytes) {
  return description == nullptr ? CUBLAS_STATUS_INVALID_VALUE : set(field(*description, name), value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t name, void* value, size_t bytes,
                                              size_t* written) {
  return description == nullptr ? CUBLAS_STATUS_INVALID_VALUE
                                : get(field(*description, name), value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayout{static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name, const void* value,
                                                size_t bytes) {
  return layout == nullptr ? CUBLAS_STATUS_INVALID_VALUE : set(field(*layout, name), value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name, void* value,
                                                size_t bytes, size_t* written) {
  return layout == nullptr ? CUBLAS_STATUS_INVALID_VALUE : get(field(*layout, name), value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *preference = new cublasLtMatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  return preference == nullptr ? CUBLAS_STATUS_INVALID_VALUE : set(field(*preference, name), value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, void* value,
                                                    size_t bytes, size_t* written) {
  return preference == nullptr ? CUBLAS_STATUS_INVALID_VALUE
                               : get(field(*preference, name), value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      preference == nullptr || requested <= 0 || results == nullptr || found == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const cublasStatus_t status = injected("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Product p = problem(*description, *a, *b, *c, *d);
  if (!consistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm& algorithm : algorithms(p, *preference)) {
    if (*found == requested) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = algorithm.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.0f;
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      algo == nullptr || result == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Product p = problem(*description, *a, *b, *c, *d);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (!consistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p) || algorithm.magic != magic || algorithm.problem != fingerprint(p))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = algorithm.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1.0f;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (description == nullptr || a_layout == nullptr || b_layout == nullptr || c_layout == nullptr ||
      d_layout == nullptr || alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr ||
      d == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t injected_status = injected("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
  if (injected_status != CUBLAS_STATUS_SUCCESS) return injected_status;
  Product p = problem(*description, *a_layout, *b_layout, *c_layout, *d_layout);
  if (!consistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;

  p.a_data = a, p.b_data = b, p.c_data = c, p.d_data = d;
  p.alpha_pointer = alpha, p.beta_pointer = beta;
  const bool on_device = description->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  if (!on_device) {
    p.alpha = load(static_cast<uint32_t>(description->scale), alpha, 0);
    p.beta = load(static_cast<uint32_t>(description->scale), beta, 0);
  }
  if (c == nullptr && (on_device || p.beta != 0)) return CUBLAS_STATUS_INVALID_VALUE;
  if (c == d && (p.c.ld != p.d.ld || p.c.order != p.d.order || p.c.stride != p.d.stride))
    return CUBLAS_STATUS_INVALID_VALUE;
  const uint32_t epilogue = description->epilogue;
  if ((adds_bias(epilogue) || writes_bias_gradient(epilogue)) && description->bias == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_aux(epilogue) && description->aux == nullptr) return CUBLAS_STATUS_INVALID_VALUE;

  Algorithm algorithm{magic, fingerprint(p), 1, 1, 0, {}};
  if (algo != nullptr) {
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (algorithm.magic != magic) return CUBLAS_STATUS_INVALID_VALUE;
    if (algorithm.problem != fingerprint(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  p.splits = static_cast<int>(algorithm.splits);
  const auto fits = [&](const void* data, uint32_t type) {
    return aligned(data, std::max<size_t>(algorithm.alignment, bytes_of(type)));
  };
  if (!fits(a, p.a.type) || !fits(b, p.b.type) || !fits(d, p.d.type) || (c != nullptr && !fits(c, p.c.type)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm.workspace > workspace_bytes || (algorithm.workspace > 0 && !aligned(workspace, 16)))
    return CUBLAS_STATUS_INVALID_VALUE;

  const size_t used = algorithm.workspace;
  return status_of(api("cublasLtMatmul on a stream", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (handle->device != this_thread.device)
      return r.complain(cudaErrorInvalidDevice,
                        "a handle of cublasLt is used on another device than its own");
    return enqueue_kernel(r, call, stream, [&r, p, workspace, used]() -> std::string {
      const bool scaled_on_device = p.description.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
      const auto scale = static_cast<uint32_t>(p.description.scale);
      if (scaled_on_device && (r.find(p.alpha_pointer, bytes_of(scale)) == nullptr ||
                               r.find(p.beta_pointer, bytes_of(scale)) == nullptr))
        return "the factors of a product are not in memory of the device";
      std::string complaint = out_of_bounds(r, p, scaled_on_device ? load(scale, p.beta_pointer, 0) : p.beta);
      if (!complaint.empty()) return complaint;
      if (used > 0) {
        if (r.find(workspace, used) == nullptr) return "the workspace of a product lies beyond its memory";
        std::memset(workspace, 0xA5, used);  // overwrites the workspace
      }
      multiply(p);
      return {};
    });
  }));
}
