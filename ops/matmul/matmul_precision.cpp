#include "espalier/ops/matmul/matmul_precision.h"

#include <atomic>

namespace espalier {

namespace {

std::atomic<bool> tf32_allowed{false};
thread_local std::optional<MatmulPrecision> chosen;

}  // namespace

void allow_tf32(bool allow) { tf32_allowed = allow; }

MatmulPrecision matmul_precision() {
  if (chosen) return *chosen;
  return tf32_allowed.load(std::memory_order_relaxed) ? MatmulPrecision::tf32 : MatmulPrecision::ieee;
}

MatmulPrecisionScope::MatmulPrecisionScope(MatmulPrecision precision) : scope_(chosen, precision) {}

}  // namespace espalier
