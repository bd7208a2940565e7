// A matrix product as a oneDNN primitive: made once, and with a bias and a ReLU inside where they are wanted.
#pragma once
#include <memory>

#include "espalier/ops/matmul/gemm.h"

namespace espalier {

class GemmPrimitive {
 public:
  /// float32, with alpha 1 and beta 0. Throws UnsupportedError if oneDNN has none for it.
  explicit GemmPrimitive(const Gemm& gemm);
  ~GemmPrimitive();
  GemmPrimitive(GemmPrimitive&&) noexcept;

  /// `bias` has n elements; it is read if the product has an epilogue with one.
  void run(const void* a, const void* b, const void* bias, void* c);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
