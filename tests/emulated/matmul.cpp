#include "matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace emulated {
namespace {

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Rounds to `mantissa_bits`; to nearest, ties to even.
float rounded(float x, int mantissa_bits) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  const int cut = 23 - mantissa_bits;
  const uint32_t odd = bits >> cut & 1u;
  return float_of((bits + (1u << (cut - 1)) - 1u + odd) >> cut << cut);
}

uint16_t to_bfloat(float x) {
  if (std::isnan(x)) return 0x7fff;
  return static_cast<uint16_t>(bits_of(rounded(x, 7)) >> 16);
}
uint16_t to_half(float x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const float a = std::fabs(x);
  if (std::isnan(x)) return 0x7fff;
  if (a >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  // Below the normal numbers the steps are 2^-24, and rounding may carry into the exponent.
  if (a < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(a * 0x1p24f)));
  const uint32_t bits = bits_of(rounded(a, 10));
  return static_cast<uint16_t>(sign | ((bits >> 13) - (112u << 10)));
}
float from_half(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-24f;
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

template <class T>
T at(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void put(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// The offset of an element.
int64_t offset(const cublasLtMatrixLayout& m, int64_t row, int64_t col, int64_t batch) {
  return batch * m.stride + (m.order == CUBLASLT_ORDER_COL ? row + col * m.ld : row * m.ld + col);
}

/// A factor as rounded by tensor cores.
double factor(const cublasLtMatmulDesc& description, uint32_t type, double x) {
  if (type != CUDA_R_32F) return x;
  switch (description.compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32: return rounded(static_cast<float>(x), 10);
    case CUBLAS_COMPUTE_32F_FAST_16BF: return rounded(static_cast<float>(x), 7);
    case CUBLAS_COMPUTE_32F_FAST_16F: return from_half(to_half(static_cast<float>(x)));
    default: return x;
  }
}

double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * x * x);
}

/// op(A) as columns of `rows`, in the accumulation type.
template <class T>
std::vector<T> pack(const Product& p, const cublasLtMatrixLayout& m, const void* data, bool transposed,
                    int64_t rows, int64_t cols, int64_t batch) {
  std::vector<T> packed(static_cast<size_t>(rows * cols));
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i)
      packed[static_cast<size_t>(i + j * rows)] = static_cast<T>(
          factor(p.description, m.type,
                 load(m.type, data, transposed ? offset(m, j, i, batch) : offset(m, i, j, batch))));
  return packed;
}

template <class T>
void multiply_one(const Product& p, double alpha, double beta, int64_t batch) {
  const cublasLtMatmulDesc& description = p.description;
  const auto m = static_cast<int64_t>(p.d.rows), n = static_cast<int64_t>(p.d.cols);
  const bool ta = description.transpose_a != CUBLAS_OP_N, tb = description.transpose_b != CUBLAS_OP_N;
  const auto k = static_cast<int64_t>(ta ? p.a.rows : p.a.cols);
  const auto a = pack<T>(p, p.a, p.a_data, ta, m, k, batch);
  const auto b = pack<T>(p, p.b, p.b_data, tb, k, n, batch);

  const uint32_t epilogue = description.epilogue;
  const uint32_t bias_type =
      description.bias_type < 0 ? p.d.type : static_cast<uint32_t>(description.bias_type);
  const uint32_t aux_type = description.aux_type < 0 ? p.d.type : static_cast<uint32_t>(description.aux_type);
  const int64_t bias_at = batch * description.bias_stride, aux_at = batch * description.aux_stride;
  auto* mask = static_cast<unsigned char*>(description.aux);
  std::vector<T> sum(static_cast<size_t>(m)), part(static_cast<size_t>(m)), gradient(static_cast<size_t>(m));

  for (int64_t j = 0; j < n; ++j) {
    std::fill(sum.begin(), sum.end(), T(0));
    for (int split = 0; split < p.splits; ++split) {
      std::fill(part.begin(), part.end(), T(0));
      for (int64_t q = k * split / p.splits; q < k * (split + 1) / p.splits; ++q) {
        const T factor_b = b[static_cast<size_t>(q + j * k)];
        const T* column = a.data() + q * m;
        for (int64_t i = 0; i < m; ++i) part[static_cast<size_t>(i)] += column[i] * factor_b;
      }
      for (int64_t i = 0; i < m; ++i) sum[static_cast<size_t>(i)] += part[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < m; ++i) {
      T x = static_cast<T>(alpha) * sum[static_cast<size_t>(i)];
      if (beta != 0) x += static_cast<T>(beta * load(p.c.type, p.c_data, offset(p.c, i, j, batch)));
      if (adds_bias(epilogue)) x += static_cast<T>(load(bias_type, description.bias, bias_at + i));
      const int64_t aux_element = aux_at + i + j * description.aux_ld;
      if (is_relu(epilogue) && reads_aux(epilogue)) {
        if ((mask[aux_element / 8] >> aux_element % 8 & 1) == 0) x = 0;
      } else if (is_relu(epilogue)) {
        if (has_aux(epilogue)) {
          const auto bit = static_cast<unsigned char>(1u << aux_element % 8);
          mask[aux_element / 8] =
              static_cast<unsigned char>((mask[aux_element / 8] & ~bit) | (x > 0 ? bit : 0));
        }
        x = x > 0 ? x : T(0);
      } else if (is_gelu(epilogue) && reads_aux(epilogue)) {
        x *= static_cast<T>(gelu_slope(load(aux_type, description.aux, aux_element)));
      } else if (is_gelu(epilogue)) {
        if (has_aux(epilogue)) store(aux_type, description.aux, aux_element, x);
        x = static_cast<T>(gelu(x));
      }
      gradient[static_cast<size_t>(i)] += x;
      store(p.d.type, p.d_data, offset(p.d, i, j, batch), x);
    }
  }

  if (!writes_bias_gradient(epilogue)) return;
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    for (int64_t j = 0; j < n; ++j) {
      T total = 0;
      for (int64_t q = 0; q < k; ++q) total += b[static_cast<size_t>(q + j * k)];
      store(bias_type, description.bias, bias_at + j, total);
    }
    return;
  }
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    std::fill(gradient.begin(), gradient.end(), T(0));
    for (int64_t q = 0; q < k; ++q)
      for (int64_t i = 0; i < m; ++i) gradient[static_cast<size_t>(i)] += a[static_cast<size_t>(i + q * m)];
  }
  for (int64_t i = 0; i < m; ++i)
    store(bias_type, description.bias, bias_at + i, gradient[static_cast<size_t>(i)]);
}

}  // namespace

size_t bytes_of(uint32_t type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 0;
  }
}
double load(uint32_t type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_64F: return at<double>(data, index);
    case CUDA_R_32F: return at<float>(data, index);
    case CUDA_R_16F: return from_half(at<uint16_t>(data, index));
    default: return float_of(static_cast<uint32_t>(at<uint16_t>(data, index)) << 16);
  }
}
void store(uint32_t type, void* data, int64_t index, double value) {
  switch (type) {
    case CUDA_R_64F: put(data, index, value); break;
    case CUDA_R_32F: put(data, index, static_cast<float>(value)); break;
    case CUDA_R_16F: put(data, index, to_half(static_cast<float>(value))); break;
    default: put(data, index, to_bfloat(static_cast<float>(value))); break;
  }
}

bool adds_bias(uint32_t epilogue) { return (epilogue & 4u) != 0; }
bool writes_bias_gradient(uint32_t epilogue) { return (epilogue & (16u | 256u | 512u)) != 0; }
bool is_relu(uint32_t epilogue) { return (epilogue & (2u | 8u)) != 0; }
bool is_gelu(uint32_t epilogue) { return (epilogue & (32u | 64u)) != 0; }
bool has_aux(uint32_t epilogue) { return (epilogue & 128u) != 0; }
bool reads_aux(uint32_t epilogue) { return (epilogue & (8u | 64u)) != 0; }

void multiply(const Product& product) {
  const bool on_device = product.description.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  const auto scale = static_cast<uint32_t>(product.description.scale);
  const double alpha = on_device ? load(scale, product.alpha_pointer, 0) : product.alpha;
  const double beta = on_device ? load(scale, product.beta_pointer, 0) : product.beta;
  for (int64_t batch = 0; batch < product.d.batch; ++batch) {
    if (product.d.type == CUDA_R_64F)
      multiply_one<double>(product, alpha, beta, batch);
    else
      multiply_one<float>(product, alpha, beta, batch);
  }
}

}  // namespace emulated
