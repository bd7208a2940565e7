#include "cublaslt_rules.h"

namespace emulated {

namespace {

bool consistent(const cublasLtMatrixLayout& m) {
  const auto least = static_cast<int64_t>(m.order == CUBLASLT_ORDER_COL ? m.rows : m.cols);
  return m.rows > 0 && m.cols > 0 && m.ld >= least && m.batch >= 1 && bytes_of(m.type) > 0 &&
         (m.order == CUBLASLT_ORDER_COL || m.order == CUBLASLT_ORDER_ROW);
}

/// The memory of a matrix, from its first to its last element.
size_t extent(const cublasLtMatrixLayout& m) {
  const int64_t outer = static_cast<int64_t>(m.order == CUBLASLT_ORDER_COL ? m.cols : m.rows) - 1;
  const int64_t inner = static_cast<int64_t>(m.order == CUBLASLT_ORDER_COL ? m.rows : m.cols);
  return static_cast<size_t>((m.batch - 1) * m.stride + outer * m.ld + inner) * bytes_of(m.type);
}

}  // namespace

bool consistent(const Product& p) {
  const cublasLtMatmulDesc& d = p.description;
  const bool ta = d.transpose_a != CUBLAS_OP_N, tb = d.transpose_b != CUBLAS_OP_N;
  const uint64_t m = ta ? p.a.cols : p.a.rows, k = ta ? p.a.rows : p.a.cols;
  const uint64_t k_of_b = tb ? p.b.cols : p.b.rows, n = tb ? p.b.rows : p.b.cols;
  return consistent(p.a) && consistent(p.b) && consistent(p.c) && consistent(p.d) && k == k_of_b &&
         p.d.rows == m && p.d.cols == n && p.c.rows == m && p.c.cols == n && p.a.batch == p.d.batch &&
         p.b.batch == p.d.batch && p.c.batch == p.d.batch;
}

bool supported(const Product& p) {
  const cublasLtMatmulDesc& d = p.description;
  const uint32_t in = p.a.type, out = p.d.type, epilogue = d.epilogue;
  const bool half = in == CUDA_R_16F || in == CUDA_R_16BF;
  if (p.b.type != in || p.c.type != out || d.transpose_c != CUBLAS_OP_N) return false;
  switch (d.compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      if (in != CUDA_R_64F || out != CUDA_R_64F || d.scale != CUDA_R_64F) return false;
      break;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (d.scale != CUDA_R_32F ||
          !(half ? out == in || out == CUDA_R_32F : in == CUDA_R_32F && out == CUDA_R_32F))
        return false;
      break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      if (d.scale != CUDA_R_32F || in != CUDA_R_32F || out != CUDA_R_32F) return false;
      break;
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      if (d.scale != CUDA_R_16F || in != CUDA_R_16F || out != CUDA_R_16F) return false;
      break;
    default: return false;
  }
  static constexpr uint32_t known[] = {
      CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_RELU_AUX,
      CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
      CUBLASLT_EPILOGUE_BGRADB};
  if (std::find(std::begin(known), std::end(known), epilogue) == std::end(known)) return false;
  const bool by_columns = p.a.order == CUBLASLT_ORDER_COL && p.b.order == CUBLASLT_ORDER_COL &&
                          p.c.order == CUBLASLT_ORDER_COL && p.d.order == CUBLASLT_ORDER_COL;
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && !by_columns) return false;
  if ((adds_bias(epilogue) || writes_bias_gradient(epilogue)) && d.bias_type >= 0 &&
      static_cast<uint32_t>(d.bias_type) != out)
    return false;
  if (has_aux(epilogue)) {
    const int64_t step = is_relu(epilogue) ? 128 : 8;
    if (d.aux_ld % step != 0 || d.aux_stride % step != 0 || d.aux_ld < static_cast<int64_t>(p.d.rows))
      return false;
    if (is_gelu(epilogue) && d.aux_type >= 0 && static_cast<uint32_t>(d.aux_type) != out) return false;
  }
  return true;
}

std::string out_of_bounds(const Runtime& r, const Product& p, double beta) {
  const auto bad = [&](const void* data, size_t bytes) { return r.find(data, bytes) == nullptr; };
  if (bad(p.a_data, extent(p.a))) return "a product reads A beyond its memory";
  if (bad(p.b_data, extent(p.b))) return "a product reads B beyond its memory";
  if (beta != 0 && bad(p.c_data, extent(p.c))) return "a product reads C beyond its memory";
  if (bad(p.d_data, extent(p.d))) return "a product writes D beyond its memory";
  const cublasLtMatmulDesc& d = p.description;
  const auto batches = static_cast<size_t>(p.d.batch - 1);
  if (adds_bias(d.epilogue) || writes_bias_gradient(d.epilogue)) {
    const uint64_t length = d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.d.cols : p.d.rows;
    if (bad(d.bias, (batches * static_cast<size_t>(d.bias_stride) + length) * bytes_of(p.d.type)))
      return "the bias of a product lies beyond its memory";
  }
  if (has_aux(d.epilogue)) {
    const size_t elements = batches * static_cast<size_t>(d.aux_stride) +
                            (static_cast<size_t>(p.d.cols) - 1) * static_cast<size_t>(d.aux_ld) + p.d.rows;
    if (bad(d.aux, is_relu(d.epilogue) ? (elements + 7) / 8 : elements * bytes_of(p.d.type)))
      return "the auxiliary matrix of a product lies beyond its memory";
  }
  return {};
}

}  // namespace emulated
