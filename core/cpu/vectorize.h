// One loop, compiled for several instruction sets; the widest this machine has is run.
#pragma once
#include <atomic>
#include <type_traits>

namespace espalier {

enum class VectorLevel : int { baseline, avx2, avx512 };

/// The level at which `vectorized` runs: the widest of this machine, unless the environment variable
/// ESPALIER_VECTOR_LEVEL (baseline, avx2 or avx512) or `set_vector_level` asks for less.
VectorLevel vector_level();

/// For tests and measurements. A level that this machine lacks becomes its widest. Returns the level in
/// force.
VectorLevel set_vector_level(VectorLevel level);

namespace detail {

// -1 until the first look at the machine. Constant-initialized, so that static constructors may run kernels.
extern std::atomic<int> current_vector_level;
VectorLevel find_vector_level();

/// Runs a local copy whose address does not escape: the compiler keeps the captured values in registers,
/// since the loop's writes cannot alias them.
template <class Body>
[[gnu::always_inline]] inline void run_copy(const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body>, "capture pointers and numbers only");
  const Body copy = body;
  copy();
}

// Other compilers compile the baseline alone: clang has no prefer-vector-width in its target attribute. So do
// builds for the thread sanitizer, where it takes a third of the time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ESPALIER_BASELINE_ONLY)
inline constexpr bool compiled_for_levels = true;

template <class Body>
[[gnu::noinline, gnu::target("avx2,fma,bmi,bmi2,lzcnt,f16c")]] void run_avx2(const Body& body) {
  run_copy(body);
}

template <class Body>
[[gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,bmi,bmi2,lzcnt,f16c,"
                             "prefer-vector-width=512")]] void
run_avx512(const Body& body) {
  run_copy(body);
}
#else
inline constexpr bool compiled_for_levels = false;

template <class Body>
void run_avx2(const Body& body);
template <class Body>
void run_avx512(const Body& body);
#endif

}  // namespace detail

inline VectorLevel vector_level() {
  const int level = detail::current_vector_level.load(std::memory_order_relaxed);
  return level >= 0 ? static_cast<VectorLevel>(level) : detail::find_vector_level();
}

/// Runs `body`, a lambda marked `always_inline`, which captures pointers and numbers by value:
///
///     vectorized([=]() __attribute__((always_inline)) {
///       for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
///     });
///
/// What it calls must be always_inline too, or it runs as baseline code. An OpenMP region belongs around the
/// call: inside, the compiler would move its loop into a baseline function.
template <class Body>
[[gnu::always_inline]] inline void vectorized(const Body& body) {
  if constexpr (detail::compiled_for_levels) {
    switch (vector_level()) {
      case VectorLevel::avx512: return detail::run_avx512(body);
      case VectorLevel::avx2: return detail::run_avx2(body);
      case VectorLevel::baseline: break;
    }
  }
  detail::run_copy(body);
}

}  // namespace espalier
