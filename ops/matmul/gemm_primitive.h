// A matrix product as a oneDNN primitive, created once, with an optional bias and ReLU.
#pragma once
#include <memory>

#include "espalier/ops/matmul/gemm.h"

namespace espalier {

class GemmPrimitive {
 public:
  /// For float32, with alpha 1 and beta 0. Throws UnsupportedError if oneDNN has no primitive for the
  /// product.
  explicit GemmPrimitive(const Gemm& gemm);
  ~GemmPrimitive();
  GemmPrimitive(GemmPrimitive&&) noexcept;

  /// The scratch memory of a run, in bytes; it depends on the number of threads.
  int64_t scratch_bytes() const;
  /// The same for a primitive created on a thread whose kernels use that many threads; 0 if oneDNN has no
  /// primitive.
  static int64_t scratch_bytes(const Gemm& gemm, int threads);

  /// `bias` has n elements; it is read only if the epilogue has a bias. `scratch` has scratch_bytes(), with
  /// undefined content before and after.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
