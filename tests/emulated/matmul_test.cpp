// cublasLt against plain loops.
#include <cmath>
#include <cstring>
#include <functional>

#include "cublasLt.h"
#include "device_buffer.h"

namespace {

size_t bytes_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

/// Rounds to a type and converts back, by the definition of the type.
double rounded(cudaDataType type, double x) {
  if (type == CUDA_R_64F) return x;
  if (type == CUDA_R_32F) return static_cast<float>(x);
  const int bits = type == CUDA_R_16F ? 11 : 8;
  if (x == 0) return 0;
  int exponent = std::ilogb(x);
  if (type == CUDA_R_16F) exponent = std::max(exponent, -14);
  const double step = std::ldexp(1.0, exponent - bits + 1);
  return std::nearbyint(x / step) * step;
}

uint16_t encode_short(cudaDataType type, double x) {
  const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
  const double a = std::fabs(rounded(type, x));
  if (type == CUDA_R_16BF) {
    const auto f = static_cast<float>(rounded(type, x));
    unsigned bits;
    std::memcpy(&bits, &f, 4);
    return static_cast<uint16_t>(bits >> 16);
  }
  if (a < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<unsigned>(a * 0x1p24));
  const int exponent = std::ilogb(a);
  return static_cast<uint16_t>(sign | static_cast<unsigned>(exponent + 15) << 10 |
                               (static_cast<unsigned>(std::ldexp(a, 10 - exponent)) & 1023u));
}
double decode_short(cudaDataType type, uint16_t x) {
  if (type == CUDA_R_16BF) {
    const unsigned bits = static_cast<unsigned>(x) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }
  const int exponent = x >> 10 & 31;
  const double magnitude =
      exponent == 0 ? std::ldexp(x & 1023, -24) : std::ldexp(1024 + (x & 1023), exponent - 25);
  return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<char> encode(cudaDataType type, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = values[i];
    const auto f = static_cast<float>(d);
    const uint16_t h = bytes_of(type) == 2 ? encode_short(type, d) : uint16_t{0};
    const void* from = type == CUDA_R_64F   ? static_cast<const void*>(&d)
                       : type == CUDA_R_32F ? &f
                                            : static_cast<const void*>(&h);
    std::memcpy(bytes.data() + i * bytes_of(type), from, bytes_of(type));
  }
  return bytes;
}
std::vector<double> decode(cudaDataType type, const std::vector<char>& bytes) {
  std::vector<double> values(bytes.size() / bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const char* from = bytes.data() + i * bytes_of(type);
    if (type == CUDA_R_64F) {
      std::memcpy(&values[i], from, 8);
    } else if (type == CUDA_R_32F) {
      float f;
      std::memcpy(&f, from, 4);
      values[i] = f;
    } else {
      uint16_t h;
      std::memcpy(&h, from, 2);
      values[i] = decode_short(type, h);
    }
  }
  return values;
}

/// Numbers that every type represents exactly.
std::vector<double> numbers(size_t count, int which) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<double>(static_cast<int>((i * 7 + static_cast<size_t>(which) * 5) % 13) - 6) / 4;
  return values;
}

struct Case {
  cudaDataType in = CUDA_R_32F, out = CUDA_R_32F;
  bool ta = false, tb = false;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int m = 9, n = 5, k = 7, batch = 1;
  double alpha = 1, beta = 0;
  int algorithm = 0;
};

class Problem {
 public:
  explicit Problem(const Case& c)
      : c_(c),
        a_rows_(c.ta ? c.k : c.m),
        a_cols_(c.ta ? c.m : c.k),
        b_rows_(c.tb ? c.n : c.k),
        b_cols_(c.tb ? c.k : c.n),
        scale_(c.in == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F) {
    BOOST_REQUIRE_EQUAL(cublasLtCreate(&handle_), 0);
    cublasLtMatmulDescCreate(&description_, c.in == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                             scale_);
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{c.ta ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{c.tb ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
    // Leading dimensions larger than the rows.
    layout(a_, c.in, a_rows_, a_cols_);
    layout(b_, c.in, b_rows_, b_cols_);
    layout(c_layout_, c.out, c.m, c.n);
    layout(d_, c.out, c.m, c.n);
    cublasLtMatmulPreferenceCreate(&preference_);
    const uint64_t workspace = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         8);
  }
  ~Problem() {
    for (auto* layout : {a_, b_, c_layout_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    BOOST_REQUIRE_EQUAL(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value), 0);
  }
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value) {
    BOOST_REQUIRE_EQUAL(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
                        0);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int found = -1;
    status = cublasLtMatmulAlgoGetHeuristic(handle_, description_, a_, b_, c_layout_, d_, preference_, 8,
                                            results.data(), &found);
    results.resize(static_cast<size_t>(found));
    return results;
  }
  /// Runs the product and compares all outputs.
  void check();

  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

 private:
  void layout(cublasLtMatrixLayout_t& layout, cudaDataType type, int rows, int cols) {
    BOOST_REQUIRE_EQUAL(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(cols), rows + 3),
                        0);
    const int32_t batch = c_.batch;
    const int64_t stride = size(rows, cols);
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                     sizeof stride);
  }
  static int64_t size(int rows, int cols) { return int64_t{rows + 3} * cols; }

  Case c_;
  int a_rows_, a_cols_, b_rows_, b_cols_;
  cudaDataType scale_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_layout_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double slope(double (*f)(double), double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }

void Problem::check() {
  const Case& c = c_;
  const uint32_t e = c.epilogue;
  const auto count = [&](int rows, int cols) { return static_cast<size_t>(size(rows, cols) * c.batch); };
  const auto a = numbers(count(a_rows_, a_cols_), 1), b = numbers(count(b_rows_, b_cols_), 2);
  const auto before = numbers(count(c.m, c.n), 3);
  const bool relu = (e & (2 | 8)) != 0, aux = (e & 128) != 0, backward = (e & (8 | 64)) != 0;
  const int64_t aux_ld = relu ? 128 : 16, aux_stride = aux_ld * c.n;
  const auto bias = numbers(static_cast<size_t>(std::max(c.m, c.n) * c.batch), 4);
  const int64_t bias_stride = std::max(c.m, c.n);
  // The input of a backward pass: bits, or numbers.
  std::vector<double> aux_numbers = numbers(static_cast<size_t>(aux_stride * c.batch), 5);
  std::vector<char> aux_bytes = encode(c.out, aux_numbers);
  if (relu) {
    aux_bytes.assign(static_cast<size_t>(aux_stride * c.batch / 8), 0);
    for (size_t i = 0; i < aux_bytes.size(); ++i) aux_bytes[i] = static_cast<char>(i * 37 + 11);
  }
  const auto bit = [&](const std::vector<char>& bytes, int64_t i) {
    return (static_cast<unsigned char>(bytes[static_cast<size_t>(i / 8)]) >> (i % 8) & 1) != 0;
  };

  const DeviceBuffer<char> da(encode(c.in, a)), db(encode(c.in, b)), dc(encode(c.out, before)),
      dd(encode(c.out, before)), d_bias(encode(c.out, bias)), d_aux(aux_bytes), workspace(1 << 20);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(d_bias.data()));
  set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(d_aux.data()));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux_stride);
  const auto found = algorithms();
  BOOST_REQUIRE_EQUAL(found.size(), 3u);
  const auto& algorithm = found[static_cast<size_t>(c.algorithm)];
  const auto alpha = encode(scale_, {c.alpha}), beta = encode(scale_, {c.beta});
  BOOST_REQUIRE_EQUAL(cublasLtMatmul(handle_, description_, alpha.data(), da.data(), a_, db.data(), b_,
                                     beta.data(), dc.data(), c_layout_, dd.data(), d_, &algorithm.algo,
                                     workspace.data(), algorithm.workspaceSize, nullptr),
                      0);
  const auto d = decode(c.out, dd.values());
  const auto bias_after = decode(c.out, d_bias.values());
  const auto aux_after = d_aux.values();
  const auto aux_after_numbers = relu ? std::vector<double>() : decode(c.out, aux_after);

  const double tolerance = c.out == CUDA_R_64F   ? 1e-9
                           : c.out == CUDA_R_32F ? 1e-5
                           : c.out == CUDA_R_16F ? 2e-3
                                                 : 2e-2;
  const auto close = [&](double x, double y) { return std::fabs(x - y) <= tolerance * (1 + std::fabs(y)); };
  const auto at = [](const std::vector<double>& x, int rows, int cols, int i, int j, int q) {
    return x[static_cast<size_t>(i + j * (rows + 3) + size(rows, cols) * q)];
  };
  for (int q = 0; q < c.batch; ++q) {
    std::vector<double> bias_gradient(static_cast<size_t>(std::max(c.m, c.n)));
    for (int j = 0; j < c.n; ++j) {
      for (int i = 0; i < c.m; ++i) {
        double x = 0;
        for (int p = 0; p < c.k; ++p)
          x += (c.ta ? at(a, a_rows_, a_cols_, p, i, q) : at(a, a_rows_, a_cols_, i, p, q)) *
               (c.tb ? at(b, b_rows_, b_cols_, j, p, q) : at(b, b_rows_, b_cols_, p, j, q));
        x = c.alpha * x + c.beta * at(before, c.m, c.n, i, j, q);
        if ((e & 4) != 0) x += bias[static_cast<size_t>(i + bias_stride * q)];
        const int64_t where = i + j * aux_ld + q * aux_stride;
        if (relu && backward) x = bit(aux_bytes, where) ? x : 0;
        if (relu && !backward) {
          if (aux) BOOST_REQUIRE_EQUAL(bit(aux_after, where), x > 0);
          x = std::max(x, 0.0);
        }
        if ((e & 64) != 0) x *= slope(gelu, aux_numbers[static_cast<size_t>(where)]);
        if ((e & 32) != 0) {
          if (aux) BOOST_REQUIRE(close(aux_after_numbers[static_cast<size_t>(where)], x));
          x = gelu(x);
        }
        bias_gradient[static_cast<size_t>(i)] += x;
        BOOST_REQUIRE(close(at(d, c.m, c.n, i, j, q), x));
      }
      // Gaps between the columns are not written.
      for (int i = c.m; i < c.m + 3; ++i)
        BOOST_REQUIRE(at(d, c.m, c.n, i, j, q) == at(before, c.m, c.n, i, j, q));
    }
    int length = (e & 16) != 0 ? c.m : 0;
    if (e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB) {
      length = e == CUBLASLT_EPILOGUE_BGRADA ? c.m : c.n;
      for (int i = 0; i < length; ++i) {
        double sum = 0;
        for (int p = 0; p < c.k; ++p) {
          if (e == CUBLASLT_EPILOGUE_BGRADA)
            sum += c.ta ? at(a, a_rows_, a_cols_, p, i, q) : at(a, a_rows_, a_cols_, i, p, q);
          else
            sum += c.tb ? at(b, b_rows_, b_cols_, i, p, q) : at(b, b_rows_, b_cols_, p, i, q);
        }
        bias_gradient[static_cast<size_t>(i)] = sum;
      }
    }
    for (int i = 0; i < length; ++i)
      BOOST_REQUIRE(
          close(bias_after[static_cast<size_t>(i + bias_stride * q)], bias_gradient[static_cast<size_t>(i)]));
  }
}

const uint32_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_BIAS,
    CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_RELU_AUX,    CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,       CUBLASLT_EPILOGUE_DRELU_BGRAD,
    CUBLASLT_EPILOGUE_DGELU,         CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
    CUBLASLT_EPILOGUE_BGRADB};
const std::pair<cudaDataType, cudaDataType> types[] = {{CUDA_R_32F, CUDA_R_32F}, {CUDA_R_64F, CUDA_R_64F},
                                                       {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16BF, CUDA_R_16BF},
                                                       {CUDA_R_16F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_32F}};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(emulated_cublaslt, Fresh)

BOOST_AUTO_TEST_CASE(agrees_with_plain_loops) {
  for (const auto& [in, out] : types)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const uint32_t epilogue : epilogues)
          for (const int algorithm : {0, 1}) {
            BOOST_TEST_CONTEXT("in " << in << " out " << out << " ta " << ta << " tb " << tb << " epilogue "
                                     << epilogue << " algorithm " << algorithm) {
              Case c{in, out, ta, tb, epilogue};
              c.algorithm = algorithm;
              if (algorithm == 1) c.alpha = 0.5, c.beta = 2, c.batch = 2;
              Problem(c).check();
            }
          }
}

BOOST_AUTO_TEST_CASE(keeps_the_conditions_of_the_real_one) {
  Case c;
  c.epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
  Problem relu(c);
  BOOST_TEST(relu.algorithms().empty());  // no leading dimension yet
  relu.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{64});
  BOOST_TEST(relu.algorithms().empty());
  BOOST_TEST(relu.status == CUBLAS_STATUS_NOT_SUPPORTED);
  relu.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
  BOOST_TEST(relu.algorithms().size() == 3u);

  c.epilogue = CUBLASLT_EPILOGUE_BIAS;
  Problem bias(c);
  bias.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_16F});
  BOOST_TEST(bias.algorithms().empty());

  Problem plain((Case()));
  plain.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4);
  BOOST_TEST(plain.algorithms().size() == 2u);
  plain.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 2);
  BOOST_TEST(plain.algorithms().empty());
  emulated::fail_next("cublasLtMatmulAlgoGetHeuristic");
  Problem other((Case()));
  BOOST_TEST(other.algorithms().empty());
  BOOST_TEST(other.algorithms().size() == 3u);
}

BOOST_AUTO_TEST_CASE(is_part_of_streams_and_graphs) {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 2, 2, 2);
  const DeviceBuffer<float> a(std::vector<float>{1, 2, 3, 4}), d(std::vector<float>(4, 0.0f));
  const Stream stream;
  float alpha = 1, beta = 1;
  const auto multiply = [&](const float* x) {
    return cublasLtMatmul(handle, description, &alpha, x, layout, a.data(), layout, &beta, d.data(), layout,
                          d.data(), layout, nullptr, nullptr, 0, stream);
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  BOOST_TEST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  BOOST_TEST(multiply(a.data()) == CUBLAS_STATUS_SUCCESS);
  alpha = 100;  // the capture has its own
  BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  BOOST_TEST(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
  cudaGraphLaunch(executable, stream);
  cudaGraphLaunch(executable, stream);
  BOOST_TEST(d.now()[0] == 0.0f);
  cudaStreamSynchronize(stream);
  BOOST_TEST(d.now() == (std::vector<float>{14, 20, 30, 44}), boost::test_tools::per_element());
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(executable);

  BOOST_TEST(multiply(a.data() + 1) == CUBLAS_STATUS_SUCCESS);
  BOOST_TEST(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);  // it reads beyond A
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
}

BOOST_AUTO_TEST_SUITE_END()
