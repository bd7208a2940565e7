// The element types, and how code written once for a type T meets a DType known at run time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace espalier {

enum class DType : uint8_t { float32, float64, int32, int64, boolean };

inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType int32 = DType::int32;
inline constexpr DType int64 = DType::int64;
inline constexpr DType boolean = DType::boolean;

/// "float32", "float64", "int32", "int64" or "bool".
std::string_view name(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32: return 4;
    case DType::float64:
    case DType::int64: return 8;
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr bool is_real(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

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

template <class T>
requires is_element_type<T>
constexpr DType dtype_of() {
  if constexpr (sizeof(T) == 1) return DType::boolean;
  if constexpr (T(0.5) != T(0)) return sizeof(T) == 4 ? DType::float32 : DType::float64;
  return sizeof(T) == 4 ? DType::int32 : DType::int64;
}

/// Calls `f(TypeTag<T>{})` with the C++ type of `dtype`.
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    case DType::int32: return f(TypeTag<int32_t>{});
    case DType::int64: return f(TypeTag<int64_t>{});
    case DType::boolean: break;
  }
  return f(TypeTag<bool>{});
}

}  // namespace espalier
