// What products ask of oneDNN: whether the library was built with it, and its sgemm.
#pragma once
#include <string>

#include "espalier/ops/matmul/gemm.h"

namespace espalier {

/// Whether the library was built with oneDNN. Without it OpenBLAS computes every product, a GemmPrimitive
/// throws UnsupportedError, and so does a convolution of oneDNN.
bool has_onednn();
/// Whether oneDNN is faster with bfloat16 than with float32: on processors with AMX, and on those of AMD with
/// AVX512-BF16. One of Intel with AVX512-BF16 alone took twice as long.
bool onednn_has_bfloat16();
/// "oneDNN", its version and its revision, or "without oneDNN".
std::string onednn_version();

/// For float32. Called only with oneDNN.
void run_onednn_gemm(const Gemm& gemm, const float* a, const float* b, float* c);

}  // namespace espalier
