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

  /// `bias` has n elements; it is read only if the epilogue has a bias.
  void run(const void* a, const void* b, const void* bias, void* c);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
