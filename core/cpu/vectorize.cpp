#include "espalier/core/cpu/vectorize.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "espalier/core/error.h"

namespace espalier {
namespace {

VectorLevel widest_level() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ESPALIER_BASELINE_ONLY)
  __builtin_cpu_init();
  // Every feature that a target attribute in vectorize.h names, and that the system saves the registers'
  // state.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return VectorLevel::avx512;
  if (avx2) return VectorLevel::avx2;
#endif
  return VectorLevel::baseline;
}

}  // namespace

namespace detail {

constinit std::atomic<int> current_vector_level{-1};

VectorLevel find_vector_level() {
  const char* asked = std::getenv("ESPALIER_VECTOR_LEVEL");
  const std::string level = asked ? asked : "";
  if (level.empty() || level == "avx512") return set_vector_level(VectorLevel::avx512);
  if (level == "avx2") return set_vector_level(VectorLevel::avx2);
  if (level == "baseline") return set_vector_level(VectorLevel::baseline);
  throw Error("ESPALIER_VECTOR_LEVEL is baseline, avx2 or avx512, not \"" + level + "\"");
}

}  // namespace detail

VectorLevel set_vector_level(VectorLevel level) {
  level = std::min(level, widest_level());
  detail::current_vector_level.store(static_cast<int>(level), std::memory_order_relaxed);
  return level;
}

}  // namespace espalier
