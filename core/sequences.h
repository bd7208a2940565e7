// Tensors of evenly spaced numbers, and random integers.
#pragma once
#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "espalier/core/number.h"
#include "espalier/core/tensor.h"

namespace espalier {

namespace detail {
Tensor arange(const Number& begin, const Number& end, const Number& step, DType dtype,
              const std::source_location& where);
template <class T>
concept Arithmetic = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
}  // namespace detail

/// begin, begin + step, … up to `end`, which is excluded; none if `end` lies on the other side. Throws Error
/// for a step of 0, TypeError for numbers that the dtype does not have.
template <detail::Arithmetic A, detail::Arithmetic B, detail::Arithmetic S = int>
Tensor arange(A begin, B end, S step = 1, DType dtype = float32,
              std::source_location where = std::source_location::current()) {
  return detail::arange(detail::Number(begin), detail::Number(end), detail::Number(step), dtype, where);
}
template <detail::Arithmetic A, detail::Arithmetic B>
Tensor arange(A begin, B end, DType dtype, std::source_location where = std::source_location::current()) {
  return arange(begin, end, 1, dtype, where);
}

/// `count` evenly spaced numbers, the first `begin` and the last `end`. Throws ShapeError for a negative
/// count, TypeError unless the dtype is real.
Tensor linspace(double begin, double end, int64_t count, DType dtype = float32,
                std::source_location where = std::source_location::current());
/// base^x for `count` evenly spaced x from `begin` to `end`, as linspace.
Tensor logspace(double begin, double end, int64_t count, double base = 10, DType dtype = float32,
                std::source_location where = std::source_location::current());
/// [rows, columns] with ones where both indices are equal. Throws ShapeError for negative sizes.
Tensor eye(int64_t rows, int64_t columns, DType dtype = float32,
           std::source_location where = std::source_location::current());

// From this thread's generator, one stream a call, as randn and rand.
/// Integers in [low, high), each as likely. Throws Error unless low < high, TypeError unless the dtype is one
/// of integers that has them all.
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = int64,
               std::source_location where = std::source_location::current());
/// The numbers 0 to n - 1 in a random order, every order as likely. Throws ShapeError if n is negative,
/// TypeError for a dtype that does not have them.
Tensor randperm(int64_t n, DType dtype = int64, std::source_location where = std::source_location::current());

}  // namespace espalier
