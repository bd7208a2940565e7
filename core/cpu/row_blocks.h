// Blocks of operands that do not lie one behind the other, for the rows of costly pointwise functions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "espalier/core/scalar.h"

namespace espalier {

namespace scalar {
// Of scalar_functions.h, scalar_special.h and scalar_activations.h.
struct Exp2;
struct Expm1;
struct Log2;
struct Log10;
struct Tan;
struct Asin;
struct Acos;
struct Atan;
struct Sinh;
struct Cosh;
struct Asinh;
struct Acosh;
struct Atanh;
struct Erfc;
struct Erfinv;
struct Atan2;
struct LogAddExp;
struct XLogY;
struct Lgamma;
struct Digamma;
struct Polygamma;
struct Gelu;
struct GeluGradient;
struct GeluTanh;
struct GeluTanhSlope;
struct Silu;
struct SiluSlope;
struct Mish;
struct MishSlope;
struct Softplus;
struct LogSigmoid;
struct Elu;
struct EluSlope;
struct Celu;
struct CeluSlope;
struct Selu;
struct SeluSlope;
struct TanhShrink;
}  // namespace scalar

namespace detail {

template <class F, class... Known>
inline constexpr bool is_any_of = (std::is_same_v<F, Known> || ...);

inline constexpr int64_t few = 16;
inline constexpr int64_t row_block = 256;  // elements that stay in the innermost cache

/// Functors of many instructions have one loop, which reads operands that do not lie one behind the other
/// through a copy of a block. For all others a loop for each pattern of steps is small, and faster.
template <class F>
inline constexpr bool is_costly =
    is_any_of<F, scalar::Power, scalar::Exp, scalar::Log, scalar::Log1p, scalar::Sin, scalar::Cos,
              scalar::Tanh, scalar::Sigmoid, scalar::Erf, scalar::Exp2, scalar::Expm1, scalar::Log2,
              scalar::Log10, scalar::Tan, scalar::Asin, scalar::Acos, scalar::Atan, scalar::Sinh,
              scalar::Cosh, scalar::Asinh, scalar::Acosh, scalar::Atanh, scalar::Erfc, scalar::Erfinv,
              scalar::Atan2, scalar::LogAddExp, scalar::XLogY, scalar::Lgamma, scalar::Digamma,
              scalar::Polygamma, scalar::Gelu, scalar::GeluGradient, scalar::GeluTanh, scalar::GeluTanhSlope,
              scalar::Silu, scalar::SiluSlope, scalar::Mish, scalar::MishSlope, scalar::Softplus,
              scalar::LogSigmoid, scalar::Elu, scalar::EluSlope, scalar::Celu, scalar::CeluSlope,
              scalar::Selu, scalar::SeluSlope, scalar::TanhShrink>;

/// The shortest row that is worth the vector code: short ones of costly functors are filled up to it.
template <class F>
inline constexpr int64_t shortest = is_costly<F> ? few : few + 1;

/// The elements of an operand of any step, a block at a time.
template <class T>
class DenseBlocks {
 public:
  DenseBlocks(const T* from, int64_t step) : from_(from), step_(step) {}
  /// `n` elements from `begin` on: where they are, or copied.
  const T* at(int64_t begin, int64_t n) {
    if (step_ == 1) return from_ + begin;
    if (step_ != 0 || begin == 0) copy(begin, n, n);
    return room_;
  }
  /// The first `n`, of which the last one is repeated until they are `few`.
  const T* filled_up(int64_t n) {
    copy(0, n, few);
    return room_;
  }

 private:
  [[gnu::noinline]] void copy(int64_t begin, int64_t n, int64_t size) {
    if (step_ == 0) return std::fill(room_, room_ + size, *from_);
    for (int64_t i = 0; i < n; ++i) room_[i] = from_[(begin + i) * step_];
    for (int64_t i = n; i < size; ++i) room_[i] = room_[n - 1];
  }

  const T* from_;
  int64_t step_;
  T room_[row_block];
};

/// Rows shorter than this are computed as the loop is written.
inline constexpr int64_t very_few = 4;
[[gnu::always_inline]] inline void not_vectorized() { asm volatile(""); }

}  // namespace detail

}  // namespace espalier
