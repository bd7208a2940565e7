#include "espalier/ops/matmul/cuda/cublaslt_recipe.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/cuda/cublaslt_choice.h"
#include "espalier/ops/matmul/cuda/measuring.h"

namespace espalier::cu {

namespace {

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDA_R_32F;
    case DType::float64: return CUDA_R_64F;
    case DType::float16: return CUDA_R_16F;
    case DType::bfloat16: return CUDA_R_16BF;
    default: throw UnsupportedError(fmt::format("matmul: cuBLASLt has none for {}", name(dtype)));
  }
}

cublasComputeType_t compute_type(const LtCase& c) {
  if (c.dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  return c.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t name_of(LtEpilogue epilogue) {
  switch (epilogue) {
    case LtEpilogue::none: break;
    case LtEpilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case LtEpilogue::relu: return CUBLASLT_EPILOGUE_RELU;
    case LtEpilogue::bias_relu: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case LtEpilogue::relu_mask: return CUBLASLT_EPILOGUE_RELU_AUX;
    case LtEpilogue::bias_relu_mask: return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case LtEpilogue::masked: return CUBLASLT_EPILOGUE_DRELU;
    case LtEpilogue::masked_sums: return CUBLASLT_EPILOGUE_DRELU_BGRAD;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// A row-major matrix, or its transpose as it is stored; by columns, rows and columns change places.
LtLayout layout_of(const LtCase& c, int64_t rows, int64_t columns, bool transposed, int64_t leading,
                   int64_t step) {
  if (transposed) std::swap(rows, columns);
  LtLayout layout(type_of(c.dtype), columns, rows, leading);
  if (c.batch > 1) layout.repeat(static_cast<int32_t>(c.batch), step);
  return layout;
}

struct Recipes {
  std::mutex mutex;
  std::map<LtCase, std::shared_ptr<const LtRecipe>> known;
};
Recipes& recipes() {
  static auto* recipes = new Recipes;
  return *recipes;
}

}  // namespace

std::string LtCase::str() const {
  return fmt::format("{} {}{} {} {} {} {} {} {} batch {} {} {} {} epilogue {}{}{}{} align {} {} {} {}",
                     name(dtype), transpose_a ? 't' : 'n', transpose_b ? 't' : 'n', m, n, k, lda, ldb, ldc,
                     batch, step_a, step_b, step_c, static_cast<int>(epilogue), tf32 ? " tf32" : "",
                     adds ? " adds" : "", device_scalars ? " device" : "", align_a, align_b, align_c,
                     align_vector);
}

LtRecipe::LtRecipe(const LtCase& x)
    : a(layout_of(x, x.m, x.k, x.transpose_a, x.lda, x.step_a)),
      b(layout_of(x, x.k, x.n, x.transpose_b, x.ldb, x.step_b)),
      c(layout_of(x, x.m, x.n, false, x.ldc, x.step_c)),
      operation(lt_operation(x, nullptr, nullptr)) {}

bool has_vector(LtEpilogue epilogue) {
  return epilogue != LtEpilogue::none && epilogue != LtEpilogue::relu && epilogue != LtEpilogue::relu_mask &&
         epilogue != LtEpilogue::masked;
}
bool has_mask(LtEpilogue epilogue) {
  return epilogue >= LtEpilogue::relu_mask && epilogue <= LtEpilogue::masked_sums;
}

LtOperation lt_operation(const LtCase& c, void* vector, void* mask) {
  LtOperation result(compute_type(c), type_of(lt_scale_type(c.dtype)));
  if (c.transpose_b) result.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (c.transpose_a) result.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  if (c.device_scalars) result.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  if (c.epilogue == LtEpilogue::none) return result;
  result.set(CUBLASLT_MATMUL_DESC_EPILOGUE, name_of(c.epilogue));
  if (has_vector(c.epilogue)) result.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (has_mask(c.epilogue)) {
    result.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
    result.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, lt_mask_row(c.n));
  }
  return result;
}

std::shared_ptr<const LtRecipe> lt_recipe(const LtCase& wanted, const LtOperation* operation) {
  constexpr size_t most = 4096;  // of programs whose sizes never repeat
  LtCase c = wanted;
  if (!c.measured && MeasuringScope::lives()) c.measured = has_measurement(c);
  Recipes& x = recipes();
  {
    const std::lock_guard lock(x.mutex);
    if (const auto known = x.known.find(c); known != x.known.end()) return known->second;
  }
  auto made = std::make_shared<LtRecipe>(c);
  if (const auto algorithm = choose_algorithm(c, *made, operation ? *operation : made->operation)) {
    made->algorithm = *algorithm;
    made->supported = true;
  }
  const std::lock_guard lock(x.mutex);
  if (x.known.size() >= most) x.known.clear();
  return x.known.emplace(c, std::move(made)).first->second;
}

}  // namespace espalier::cu
