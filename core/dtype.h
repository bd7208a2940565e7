// The element types, and how code written once for a type T meets a DType known at run time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include "espalier/core/half.h"

namespace espalier {

/// Files hold these numbers: new types come last.
enum class DType : uint8_t {
  float32,
  float64,
  int32,
  int64,
  boolean,
  float16,
  bfloat16,
  int8,  ///< this and the next two hold data: they are moved, compared for equality and cast
  uint8,
  int16
};
inline constexpr DType all_dtypes[] = {DType::float32, DType::float64, DType::int32,    DType::int64,
                                       DType::boolean, DType::float16, DType::bfloat16, DType::int8,
                                       DType::uint8,   DType::int16};

inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType int32 = DType::int32;
inline constexpr DType int64 = DType::int64;
inline constexpr DType boolean = DType::boolean;
inline constexpr DType float16 = DType::float16;
inline constexpr DType bfloat16 = DType::bfloat16;
inline constexpr DType int8 = DType::int8;
inline constexpr DType uint8 = DType::uint8;
inline constexpr DType int16 = DType::int16;

/// "float32", "float64", "int32", "int64", "bool", "float16", "bfloat16", "int8", "uint8" or "int16".
std::string_view name(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32: return 4;
    case DType::float64:
    case DType::int64: return 8;
    case DType::float16:
    case DType::bfloat16:
    case DType::int16: return 2;
    case DType::int8:
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// The 16-bit reals: the CPU computes with them in float32.
constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }
constexpr bool is_real(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || is_half(dtype);
}
/// int8, uint8 and int16: the integers of images and of quantized values, with which nothing is computed.
constexpr bool is_small_integer(DType dtype) {
  return dtype == DType::int8 || dtype == DType::uint8 || dtype == DType::int16;
}

template <class T>
struct TypeTag {
  using type = T;
};

template <class T>
inline constexpr bool is_element_type = false;
template <>
inline constexpr bool is_element_type<float> = true;
template <>
inline constexpr bool is_element_type<double> = true;
template <>
inline constexpr bool is_element_type<int32_t> = true;
template <>
inline constexpr bool is_element_type<int64_t> = true;
template <>
inline constexpr bool is_element_type<bool> = true;
template <>
inline constexpr bool is_element_type<Float16> = true;
template <>
inline constexpr bool is_element_type<BFloat16> = true;
template <>
inline constexpr bool is_element_type<int8_t> = true;
template <>
inline constexpr bool is_element_type<uint8_t> = true;
template <>
inline constexpr bool is_element_type<int16_t> = true;

template <class T>
requires is_element_type<T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, Float16>) return DType::float16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::bfloat16;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, int8_t>) return DType::int8;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::uint8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::int16;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::float32 : DType::float64;
  return sizeof(T) == 4 ? DType::int32 : DType::int64;
}

namespace detail {
[[noreturn]] void throw_no_arithmetic(DType dtype);
}

/// Calls `f(TypeTag<T>{})` with the C++ type of `dtype`, one of those that are computed in: loops never see
/// the 16-bit reals, which the CPU computes in float32, nor int8, uint8 and int16.
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    case DType::int32: return f(TypeTag<int32_t>{});
    case DType::int64: return f(TypeTag<int64_t>{});
    case DType::boolean: return f(TypeTag<bool>{});
    case DType::float16:
    case DType::bfloat16:
    case DType::int8:
    case DType::uint8:
    case DType::int16: break;
  }
  detail::throw_no_arithmetic(dtype);
}

/// The same with the 16-bit reals.
template <class F>
decltype(auto) visit_all(DType dtype, F&& f) {
  if (dtype == DType::float16) return f(TypeTag<Float16>{});
  if (dtype == DType::bfloat16) return f(TypeTag<BFloat16>{});
  return visit(dtype, f);
}

/// The same with all element types: for conversions.
template <class F>
decltype(auto) visit_stored(DType dtype, F&& f) {
  if (dtype == DType::int8) return f(TypeTag<int8_t>{});
  if (dtype == DType::uint8) return f(TypeTag<uint8_t>{});
  if (dtype == DType::int16) return f(TypeTag<int16_t>{});
  return visit_all(dtype, f);
}

/// The same with an unsigned integer as large as an element: for what only moves elements.
template <class F>
decltype(auto) visit_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f(TypeTag<uint8_t>{});
    case 2: return f(TypeTag<uint16_t>{});
    case 4: return f(TypeTag<uint32_t>{});
    default: return f(TypeTag<uint64_t>{});
  }
}

}  // namespace espalier
