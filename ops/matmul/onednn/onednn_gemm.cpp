#include "espalier/ops/matmul/onednn_gemm.h"

#include <dnnl.h>
#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

bool has_onednn() { return true; }

bool onednn_has_bfloat16() {
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
#ifdef __x86_64__
  if (isa == dnnl_cpu_isa_avx512_core_bf16) return __builtin_cpu_is("amd");
#endif
  return isa == dnnl_cpu_isa_avx512_core_amx;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{} {}", version->major, version->minor, version->patch, version->hash);
}

void run_onednn_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  const dnnl_status_t status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k,
                 static_cast<float>(g.alpha), a, g.lda, b, g.ldb, static_cast<float>(g.beta), c, g.ldc);
  if (status == dnnl_out_of_memory) throw OutOfMemory("matmul: oneDNN found no memory for its workspace");
  if (status != dnnl_success) throw Error(fmt::format("matmul: oneDNN failed with status {}", int{status}));
}

}  // namespace espalier
