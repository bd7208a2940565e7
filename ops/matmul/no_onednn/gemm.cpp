// In place of ../onednn: products of a library without oneDNN.
#include "espalier/core/error.h"
#include "espalier/ops/matmul/gemm_primitive.h"
#include "espalier/ops/matmul/onednn_gemm.h"

namespace espalier {

namespace {

[[noreturn]] void refuse() { throw UnsupportedError("matmul: this Espalier was built without oneDNN"); }

}  // namespace

bool has_onednn() { return false; }
bool onednn_has_bfloat16() { return false; }
std::string onednn_version() { return "without oneDNN"; }
void run_onednn_gemm(const Gemm&, const float*, const float*, float*) { refuse(); }

struct GemmPrimitive::Impl {};
GemmPrimitive::GemmPrimitive(const GemmBatch&, GemmLibrary, DType) { refuse(); }
GemmPrimitive::~GemmPrimitive() = default;
GemmPrimitive::GemmPrimitive(GemmPrimitive&&) noexcept = default;
int64_t GemmPrimitive::scratch_bytes() const { refuse(); }
int64_t GemmPrimitive::scratch_bytes(const Gemm&, int) { return 0; }
std::optional<int64_t> GemmPrimitive::scratch_bytes(const GemmBatch&, GemmLibrary, DType, int) {
  return std::nullopt;
}
int64_t GemmPrimitive::packed_bytes() const { refuse(); }
std::string GemmPrimitive::packed_layout() const { refuse(); }
void GemmPrimitive::pack(const void*, void*) { refuse(); }
void GemmPrimitive::run(const void*, const void*, const void*, void*, void*) { refuse(); }

}  // namespace espalier
