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

  /// Scratch memory that a run needs; it depends on the number of threads.
  int64_t scratch_bytes() const;
  /// The same for a primitive that is made by a thread which may use so many; 0 if there is none.
  static int64_t scratch_bytes(const Gemm& gemm, int threads);

  /// `bias` has n elements; it is read if the product has an epilogue with one. `scratch` has
  /// scratch_bytes(), which hold nothing before and after.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
