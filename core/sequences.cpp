#include "espalier/core/sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/cpu/philox_words.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier {

namespace {

void check_count(int64_t count, std::string_view op) {
  if (count < 0) throw ShapeError(fmt::format("{}: the number of elements is {}", op, count));
}
void check_real_dtype(DType dtype, std::string_view op) {
  if (!is_real(dtype)) throw TypeError(fmt::format("{}: dtype must be a real one, not {}", op, name(dtype)));
}

template <class T>
Tensor tensor_of_values(const std::vector<T>& values, DType dtype, const std::source_location& where) {
  return detail::tensor_of(values.data(), {static_cast<int64_t>(values.size())}, dtype, where);
}

std::vector<double> evenly_spaced(double begin, double end, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)  // from the nearer end, so that both are exact
    values[static_cast<size_t>(i)] = 2 * i < count ? begin + step * static_cast<double>(i)
                                                   : end - step * static_cast<double>(count - 1 - i);
  return values;
}

/// The largest number of elements that arange makes.
constexpr double most_elements = 0x1p53;

std::vector<int64_t> integers_between(int64_t begin, int64_t end, int64_t step) {
  __extension__ using Wide = __int128;
  const Wide distance = Wide{end} - begin, wide_step = step;
  const Wide count =
      step > 0 ? (distance + wide_step - 1) / wide_step : (distance + wide_step + 1) / wide_step;
  if (count > Wide{1} << 53) throw OutOfMemory("arange: there are more than 2^53 elements");
  std::vector<int64_t> values(count > 0 ? static_cast<size_t>(count) : 0);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(begin + wide_step * static_cast<Wide>(i));
  return values;
}

}  // namespace

namespace detail {

Tensor arange(const Number& begin, const Number& end, const Number& step, DType dtype,
              const std::source_location& where) {
  return located(where, [&] {
    if (!(step.real != 0 && std::isfinite(step.real) && std::isfinite(begin.real) && std::isfinite(end.real)))
      throw Error(
          fmt::format("arange: from {} to {} in steps of {}: the step must not be 0, and all are finite",
                      begin.real, end.real, step.real));
    if (begin.fits_integer && end.fits_integer && step.fits_integer)
      return tensor_of_values(integers_between(begin.integer, end.integer, step.integer), dtype, where);
    const double count = std::ceil((end.real - begin.real) / step.real);
    if (count > most_elements) throw OutOfMemory("arange: there are more than 2^53 elements");
    std::vector<double> values(count > 0 ? static_cast<size_t>(count) : 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = begin.real + step.real * static_cast<double>(i);
    return tensor_of_values(values, dtype, where);
  });
}

}  // namespace detail

Tensor linspace(double begin, double end, int64_t count, DType dtype, std::source_location where) {
  return located(where, [&] {
    check_count(count, "linspace");
    check_real_dtype(dtype, "linspace");
    return tensor_of_values(evenly_spaced(begin, end, count), dtype, where);
  });
}

Tensor logspace(double begin, double end, int64_t count, double base, DType dtype,
                std::source_location where) {
  return located(where, [&] {
    check_count(count, "logspace");
    check_real_dtype(dtype, "logspace");
    std::vector<double> values = evenly_spaced(begin, end, count);
    for (double& value : values) value = std::pow(base, value);
    return tensor_of_values(values, dtype, where);
  });
}

Tensor eye(int64_t rows, int64_t columns, DType dtype, std::source_location where) {
  return located(where, [&] {
    Tensor result = zeros({rows, columns}, dtype, where);
    visit_stored(dtype, [&]<class T>(TypeTag<T>) {
      T* data = result.data<T>();
      for (int64_t i = 0; i < std::min(rows, columns); ++i) data[i * (columns + 1)] = T(1);
    });
    return result;
  });
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] {
    if (low >= high) throw Error(fmt::format("randint: there is no integer from {} to below {}", low, high));
    if (is_small_integer(dtype)) {
      if (!has_number(dtype, static_cast<double>(low)) || !has_number(dtype, static_cast<double>(high - 1)))
        throw TypeError(fmt::format("randint: {} does not have all integers from {} to below {}", name(dtype),
                                    low, high));
      return randint(low, high, shape, DType::int32, where).to(dtype);
    }
    if (dtype != DType::int64 && dtype != DType::int32)
      throw TypeError(fmt::format("randint: dtype must be one of integers, not {}", name(dtype)));
    if (dtype == DType::int32 && (low < INT32_MIN || high - 1 > INT32_MAX))
      throw TypeError(
          fmt::format("randint: int32 does not have all integers from {} to below {}", low, high));
    Tensor result(shape, dtype);
    const RandomStream stream = next_stream();
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    visit(dtype, [&]<class T>(TypeTag<T>) {
      if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
        constexpr int64_t chunk = 512;  // elements, of two words each
        uint32_t words[2 * chunk];
        T* out = result.data<T>();
        for (int64_t at = 0; at < result.elements(); at += chunk) {
          const int64_t n = std::min(chunk, result.elements() - at);
          detail::philox_words(stream, static_cast<uint64_t>(at) / 2, (n + 1) / 2, words);
          for (int64_t i = 0; i < n; ++i) {
            // The high half of a product with 64 random bits: likelihoods differ by less than 2^-64 · range.
            __extension__ using Wide = unsigned __int128;
            const uint64_t bits = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
            const auto below = static_cast<uint64_t>(static_cast<Wide>(bits) * range >> 64);
            out[at + i] = static_cast<T>(static_cast<uint64_t>(low) + below);
          }
        }
      }
    });
    return result;
  });
}

Tensor randperm(int64_t n, DType dtype, std::source_location where) {
  return located(where, [&] {
    check_count(n, "randperm");
    std::vector<int64_t> order(static_cast<size_t>(n));
    const RandomStream stream = next_stream();
    // The seed differs from that of the shuffles of feeds, which are numbered by epochs.
    permutation(~stream.seed, stream.stream, order.data(), n);
    return tensor_of_values(order, dtype, where);
  });
}

}  // namespace espalier
