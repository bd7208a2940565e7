// Matrix products by the fastest algorithms of cuBLASLt.
#pragma once
#include <span>

#include "../gemm.h"
#include "device.h"

namespace bench {

enum class Numbers { float32, tf32, bfloat16 };  // what a product computes with

/// One product on random matrices, by the fastest of the algorithms that the library proposes.
class LtGemm {
 public:
  LtGemm(const Product& product, Numbers numbers, const Stream& stream);
  ~LtGemm();
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;
  void launch() const { run(algorithm_); }
  double seconds() const { return seconds_; }  // as part of a graph of this product alone
  double operations() const { return 2.0 * product_.batch * product_.m * product_.n * product_.k; }

 private:
  void run(const cublasLtMatmulAlgo_t& algorithm) const;
  cublasLtMatrixLayout_t layout(int rows, int columns) const;

  Product product_;
  cudaDataType type_;
  const Stream& stream_;
  Memory a_, b_, c_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  double seconds_ = 0;
};

}  // namespace bench
