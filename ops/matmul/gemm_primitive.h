// A matrix product, or a batch of them, as a primitive of oneDNN, created once, with an optional bias and
// ReLU.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "espalier/ops/matmul/gemm.h"

namespace espalier {

class GemmPrimitive {
 public:
  /// For float32 and bfloat16, with alpha 1 and beta 0, by one of the primitives among the libraries: the
  /// last ones read b in a layout of their own, where it is packed from elements of type `b_type`. Throws
  /// UnsupportedError if oneDNN has no primitive for the product, or only plain loops for bfloat16.
  explicit GemmPrimitive(const Gemm& gemm, GemmLibrary which = GemmLibrary::onednn_matmul)
      : GemmPrimitive({gemm, {}, {}, {}}, which, gemm.dtype) {}
  GemmPrimitive(const GemmBatch& product, GemmLibrary which, DType b_type);
  ~GemmPrimitive();
  GemmPrimitive(GemmPrimitive&&) noexcept;

  /// The scratch memory of a run, in bytes; it depends on the number of threads.
  int64_t scratch_bytes() const;
  /// The same for a primitive created on a thread whose kernels use that many threads; 0 if oneDNN has no
  /// primitive.
  static int64_t scratch_bytes(const Gemm& gemm, int threads);
  /// The same for a batch. Nothing if oneDNN has no primitive.
  static std::optional<int64_t> scratch_bytes(const GemmBatch& product, GemmLibrary which, DType b_type,
                                              int threads);

  /// Where b is packed: how many bytes that takes, a text that differs for other layouts, and copying a plain
  /// b there.
  int64_t packed_bytes() const;
  std::string packed_layout() const;
  void pack(const void* b, void* packed);

  /// `bias` has n elements; it is read only if the epilogue has a bias. `scratch` has scratch_bytes(), with
  /// undefined content before and after.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
