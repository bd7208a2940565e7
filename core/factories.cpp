// zeros, arange, randn … : the functions that make tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/tensor.h"

namespace espalier {

namespace {

void need_real(DType dtype, std::string_view what) {
  if (!is_real(dtype))
    throw TypeError(fmt::format("{}: dtype must be a real one, not {}", what, name(dtype)));
}

/// A number as an element of type T, or TypeError when T has no such element.
template <class T, class P>
T exact(P value) {
  if constexpr (std::is_same_v<T, P>) {
    return value;
  } else if constexpr (std::is_floating_point_v<T> || is_half_type<T>) {
    const T element = static_cast<T>(value);
    if (std::isfinite(static_cast<double>(value)) && !std::isfinite(static_cast<double>(element)))
      throw TypeError(fmt::format("{} is not a number of type {}", value, name(dtype_of<T>())));
    return element;
  } else {
    const double d = static_cast<double>(value);
    bool fits = d == std::trunc(d) && d >= -9223372036854775808.0 && d < 9.2233720368547758e18;
    if (fits)
      fits = static_cast<int64_t>(static_cast<T>(static_cast<int64_t>(value))) == static_cast<int64_t>(value);
    if (!fits) throw TypeError(fmt::format("{} is not a number of type {}", value, name(dtype_of<T>())));
    return static_cast<T>(static_cast<int64_t>(value));
  }
}

template <class T>
T element_of(const detail::Number& number) {
  if (number.overflows) throw TypeError("a number is beyond the range of double");
  return number.fits_integer ? exact<T>(number.integer) : exact<T>(number.real);
}

void fill(Tensor& tensor, const detail::Number& number) {
  visit_stored(tensor.dtype(), [&]<class T>(TypeTag<T>) {
    const T element = element_of<T>(number);
    for (T& x : tensor.span<T>()) x = element;
  });
}

}  // namespace

Tensor empty(const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] { return Tensor(shape, dtype); });
}

Tensor zeros(const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] {
    Tensor result(shape, dtype);
    if (result.bytes()) std::memset(result.address(), 0, result.bytes());
    return result;
  });
}

Tensor ones(const Shape& shape, DType dtype, std::source_location where) {
  return full(shape, 1, dtype, where);
}

Tensor full(const Shape& shape, detail::Number value, DType dtype, std::source_location where) {
  return located(where, [&] {
    Tensor result(shape, dtype);
    fill(result, value);
    return result;
  });
}

Tensor arange(int64_t n, DType dtype, std::source_location where) {
  return located(where, [&] {
    if (n < 0) throw ShapeError(fmt::format("arange: {} is negative", n));
    Tensor result({n}, dtype);
    visit_stored(dtype, [&]<class T>(TypeTag<T>) {
      if (n > 0) (void)exact<T>(n - 1);
      T* const to = static_cast<T*>(result.address());
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(i);
      });
    });
    return result;
  });
}

Tensor randn(const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] {
    need_real(dtype, "randn");
    if (is_half(dtype)) return randn(shape, float32, where).to(dtype);
    Tensor result(shape, dtype);
    const RandomStream stream = next_stream();
    if (dtype == float32)
      fill_normal(stream, result.data<float>(), result.elements(), 0, 1);
    else
      fill_normal(stream, result.data<double>(), result.elements(), 0, 1);
    return result;
  });
}

Tensor rand(const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] {
    need_real(dtype, "rand");
    if (is_half(dtype)) return rand(shape, float32, where).to(dtype);
    Tensor result(shape, dtype);
    const RandomStream stream = next_stream();
    if (dtype == float32)
      fill_uniform(stream, result.data<float>(), result.elements(), 0, 1);
    else
      fill_uniform(stream, result.data<double>(), result.elements(), 0, 1);
    return result;
  });
}

Tensor eye(int64_t n, DType dtype, std::source_location where) {
  Tensor result = zeros({n, n}, dtype, where);
  visit_stored(dtype, [&]<class T>(TypeTag<T>) {
    T* data = result.data<T>();
    for (int64_t i = 0; i < n; ++i) data[i * (n + 1)] = T(1);
  });
  return result;
}

template <class T>
Tensor tensor_from(std::span<const T> values, const Shape& shape, std::source_location where) {
  return located(where, [&] {
    if (shape.elements() != static_cast<int64_t>(values.size()))
      throw ShapeError(
          fmt::format("tensor_from: {} values cannot have the shape {}", values.size(), shape.str()));
    Tensor result(shape, dtype_of<T>());
    if (!values.empty()) std::memcpy(result.address(), values.data(), values.size_bytes());
    return result;
  });
}
template Tensor tensor_from(std::span<const float>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const double>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const int32_t>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const int64_t>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const bool>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const Float16>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const BFloat16>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const int8_t>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const uint8_t>, const Shape&, std::source_location);
template Tensor tensor_from(std::span<const int16_t>, const Shape&, std::source_location);

namespace detail {

template <class P>
Tensor tensor_of(const P* values, const Shape& shape, DType dtype, const std::source_location& where) {
  return located(where, [&] {
    Tensor result(shape, dtype);
    visit_stored(dtype, [&]<class T>(TypeTag<T>) {
      for (T& x : result.span<T>()) x = exact<T>(*values++);
    });
    return result;
  });
}
template Tensor tensor_of(const bool*, const Shape&, DType, const std::source_location&);
template Tensor tensor_of(const double*, const Shape&, DType, const std::source_location&);
template Tensor tensor_of(const int64_t*, const Shape&, DType, const std::source_location&);

void throw_too_large(uint64_t value, const std::source_location& where) {
  TypeError error(fmt::format("tensor: {} is above the largest int64, {}", value, INT64_MAX));
  error.locate(where);
  throw error;
}
void throw_too_large(long double value, const std::source_location& where) {
  TypeError error(fmt::format("tensor: {} is beyond the range of double", value));
  error.locate(where);
  throw error;
}
void throw_ragged(const std::source_location& where) {
  ShapeError error("tensor: the rows differ in length");
  error.locate(where);
  throw error;
}

Tensor tensor_of_numbers(std::span<const ListedNumber> numbers, const Shape& shape,
                         std::optional<DType> dtype, const std::source_location& where) {
  const auto is_real_number = [](const ListedNumber& number) { return is_real(number.dtype); };
  return located(where, [&] {
    if (!dtype) dtype = std::ranges::any_of(numbers, is_real_number) ? float32 : int64;
    Tensor result(shape, *dtype);
    visit_stored(*dtype, [&]<class T>(TypeTag<T>) {
      T* to = static_cast<T*>(result.address());
      for (const ListedNumber& number : numbers) {
        if (number.overflows) throw TypeError("tensor: a number is beyond the range of double");
        if (!is_real_number(number) && !number.fits_integer)
          throw TypeError(
              fmt::format("tensor: {:.0f} is above the largest int64, {}", number.real, INT64_MAX));
        *to++ = is_real_number(number) ? exact<T>(number.real) : exact<T>(number.integer);
      }
    });
    return result;
  });
}

namespace {

Tensor tensor_of_rows(std::initializer_list<std::initializer_list<ListedNumber>> rows,
                      std::optional<DType> dtype, const std::source_location& where) {
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  std::vector<ListedNumber> numbers;
  for (const auto& row : rows) {
    if (row.size() != columns) throw_ragged(where);
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return tensor_of_numbers(numbers, {rows.size(), columns}, dtype, where);
}

Tensor tensor_of_planes(
    std::initializer_list<std::initializer_list<std::initializer_list<ListedNumber>>> planes,
    std::optional<DType> dtype, const std::source_location& where) {
  const size_t rows = planes.size() ? planes.begin()->size() : 0;
  const size_t columns = rows ? planes.begin()->begin()->size() : 0;
  std::vector<ListedNumber> numbers;
  for (const auto& plane : planes) {
    if (plane.size() != rows) throw_ragged(where);
    for (const auto& row : plane) {
      if (row.size() != columns) throw_ragged(where);
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
  }
  return tensor_of_numbers(numbers, {planes.size(), rows, columns}, dtype, where);
}

}  // namespace

Tensor Number::as(DType other) const {
  const bool beyond = is_small_integer(other) && !has_number(other, real);
  if (beyond || (!is_real(other) && other != DType::boolean && !fits_integer && real != std::trunc(real)))
    throw TypeError(
        fmt::format("the number {} meets elements of type {}, which cannot hold it; cast() them first", real,
                    name(other)));
  Tensor result(Shape{}, other);
  fill(result, *this);
  return result;
}

}  // namespace detail

Tensor tensor(std::initializer_list<std::initializer_list<detail::ListedNumber>> rows,
              std::source_location where) {
  return detail::tensor_of_rows(rows, std::nullopt, where);
}
Tensor tensor(std::initializer_list<std::initializer_list<detail::ListedNumber>> rows, DType dtype,
              std::source_location where) {
  return detail::tensor_of_rows(rows, dtype, where);
}
Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<detail::ListedNumber>>> planes,
    std::source_location where) {
  return detail::tensor_of_planes(planes, std::nullopt, where);
}
Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<detail::ListedNumber>>> planes,
    DType dtype, std::source_location where) {
  return detail::tensor_of_planes(planes, dtype, where);
}

}  // namespace espalier
