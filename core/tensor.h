// Tensor: a buffer with a shape, strides, a dtype and a device. It knows nothing of gradients.
#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

#include "espalier/core/device.h"
#include "espalier/core/dtype.h"
#include "espalier/core/number.h"
#include "espalier/core/shape.h"
#include "espalier/core/storage.h"

namespace espalier {

/// What is known of a tensor before it has a value.
struct Spec {
  DType dtype = DType::float32;
  Shape shape;
  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(size_of(dtype)); }
  friend bool operator==(const Spec&, const Spec&) = default;
};

class Tensor {
 public:
  using Where = std::source_location;

  /// No tensor at all: `defined()` is false.
  Tensor() = default;
  /// A new buffer with undefined content. Throws ShapeError, OutOfMemory or DeviceError.
  explicit Tensor(const Shape& shape, DType dtype = float32, Device device = cpu());
  Tensor(StoragePtr storage, Layout layout, DType dtype)
      : layout_(std::move(layout)), storage_(std::move(storage)), dtype_(dtype) {
    if (storage_) device_ = storage_->device;
  }

  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  /// `t[0] = x` would change nothing but what t[0] has just returned: see copy_from() and fill().
  Tensor& operator=(const Tensor&) && = delete;

  /// No tensor yet, but known to be on that device once it is computed.
  static Tensor to_come(Device device) {
    Tensor none;
    none.device_ = device;
    return none;
  }

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return layout_.shape; }
  const Dims& strides() const { return layout_.strides; }
  const Layout& layout() const { return layout_; }
  size_t rank() const { return layout_.shape.rank(); }
  int64_t elements() const { return layout_.shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Spec spec() const { return {dtype_, layout_.shape}; }
  Device device() const { return device_; }
  const StoragePtr& storage() const { return storage_; }
  /// Lets go of the buffer; shape and device stay known.
  void drop_storage() { storage_ = StoragePtr(); }
  bool contiguous() const { return layout_.contiguous(); }

  /// The first element's address, for the element type the tensor has (TypeError otherwise).
  template <class T>
  T* data(Where where = Where::current()) {
    check_type(dtype_of<T>(), where);
    return static_cast<T*>(address());
  }
  template <class T>
  const T* data(Where where = Where::current()) const {
    check_type(dtype_of<T>(), where);
    return static_cast<const T*>(address());
  }
  /// The first element's address, whatever its type.
  void* address() const {
    return static_cast<char*>(storage_->data) + static_cast<size_t>(layout_.offset) * size_of(dtype_);
  }

  /// All elements in order; the tensor must be contiguous and on the CPU.
  template <class T>
  std::span<T> span(Where where = Where::current()) {
    check_host("span", where);
    check_contiguous("span", where);
    return {data<T>(where), static_cast<size_t>(elements())};
  }
  template <class T>
  std::span<const T> span(Where where = Where::current()) const {
    return const_cast<Tensor*>(this)->span<T>(where);
  }

  /// One element on the CPU. Throws IndexError, TypeError or DeviceError.
  template <class T>
  T& at(std::initializer_list<ListedInteger> index, Where where = Where::current()) {
    check_host("at", where);
    check_type(dtype_of<T>(), where);
    return static_cast<T*>(storage_->data)[position(index, where)];
  }
  template <class T>
  const T& at(std::initializer_list<ListedInteger> index, Where where = Where::current()) const {
    return const_cast<Tensor*>(this)->at<T>(index, where);
  }

  /// The only element, as a double or as T. Throws ShapeError when there is not exactly one.
  double item(Where where = Where::current()) const;
  template <class T>
  T item(Where where = Where::current()) const;

  /// The same elements under another shape, of which one size may be -1; shares the buffer where it can.
  Tensor reshape(const Shape& shape, Where where = Where::current()) const;
  /// Elements `begin` to `end` (excluded) of an axis, sharing the buffer. Negative positions count from the
  /// end. Throws IndexError.
  Tensor slice(int64_t axis, int64_t begin, int64_t end, Where where = Where::current()) const;
  /// One element of the first axis, without that axis: shares the buffer. Negative ones count from the end.
  /// Throws IndexError, or ShapeError for a scalar.
  struct RowNumber {
    template <std::integral T>
    RowNumber(T row, Where call = Where::current()) : number(static_cast<int64_t>(row)), where(call) {}
    int64_t number;
    Where where;
  };
  Tensor operator[](const RowNumber& row) const;
  /// Its rows, as t[0], t[1] and so on: `for (const Tensor& row : t)`. Throws ShapeError for a scalar,
  /// and TypeError if there is no tensor.
  class RowIterator;
  RowIterator begin() const;
  RowIterator end() const;
  /// Writes the elements of a tensor of this dtype, whose shape can be broadcast to this one, or a number
  /// that the dtype has (TypeError), into the buffer, which whatever shares it sees: `t[0].fill(1)`. Throws
  /// ShapeError.
  void copy_from(const Tensor& from, Where where = Where::current());
  void fill(detail::Number value, Where where = Where::current());
  template <class T>
  requires std::is_arithmetic_v<T>
  void fill(T value, Where where = Where::current()) { fill(detail::Number(value), where); }
  /// All elements in order, wherever they are, converted as item<T>() does.
  template <class T>
  std::vector<T> to_vector(Where where = Where::current()) const;
  /// This tensor, or a row-major copy of it where it has gaps.
  Tensor contiguous_copy() const;
  /// A copy with a buffer of its own.
  Tensor clone() const;
  /// This tensor if it is there, or a copy on `device`.
  Tensor to(Device device, Where where = Where::current()) const;
  /// A copy with elements of another type. Reals become integers towards zero, clamped to the range; NaN
  /// becomes 0. Integers become smaller ones by their low bits: 300 becomes 44 as uint8, and -1 becomes 255.
  /// What becomes a smaller real is rounded to the nearest.
  Tensor to(DType dtype) const;

 private:
  void check_type(DType wanted, const Where& where) const {
    if (wanted != dtype_ || !storage_) throw_type(wanted, where);
  }
  void check_defined(const char* what) const;
  void check_host(const char* what, const Where& where) const;
  void check_contiguous(const char* what, const Where& where) const;
  [[noreturn]] void throw_type(DType wanted, const Where& where) const;
  size_t position(std::initializer_list<ListedInteger> index, const Where& where) const;

  Layout layout_;
  StoragePtr storage_;
  DType dtype_ = DType::float32;
  Device device_;
};

class Tensor::RowIterator {
 public:
  using value_type = Tensor;
  using difference_type = std::ptrdiff_t;

  Tensor operator*() const { return (*tensor_)[row_]; }
  RowIterator& operator++() { return ++row_, *this; }
  RowIterator operator++(int) { return {tensor_, row_++}; }
  bool operator==(const RowIterator& other) const { return row_ == other.row_; }

 private:
  friend class Tensor;
  RowIterator(const Tensor* tensor, int64_t row) : tensor_(tensor), row_(row) {}
  const Tensor* tensor_;
  int64_t row_;
};

/// Elements in nested brackets; long axes are shortened. Reals have 6 significant digits, float64 10 and
/// 16-bit ones 4, or as the stream says by its precision, if that is not 6, std::fixed or std::scientific.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Copies all elements of `from` to `to`, which has the same shape and dtype; strided as they are, and on any
/// devices.
void copy_elements(const Tensor& from, Tensor& to);
/// Sets all elements to 0; the tensor must be contiguous.
void zero_elements(Tensor& to);

// Making tensors. Reals are float32 unless another dtype is named.
Tensor empty(const Shape& shape, DType dtype = float32,
             std::source_location where = std::source_location::current());
Tensor zeros(const Shape& shape, DType dtype = float32,
             std::source_location where = std::source_location::current());
Tensor ones(const Shape& shape, DType dtype = float32,
            std::source_location where = std::source_location::current());
/// All elements are that number, which must be one of the dtype (TypeError otherwise).
Tensor full(const Shape& shape, detail::Number value, DType dtype = float32,
            std::source_location where = std::source_location::current());
template <std::convertible_to<double> T>
Tensor full(const Shape& shape, T value, DType dtype = float32,
            std::source_location where = std::source_location::current()) {
  if constexpr (std::is_arithmetic_v<T>)
    return full(shape, detail::Number(value), dtype, where);
  else
    return full(shape, detail::Number(static_cast<double>(value)), dtype, where);
}
/// 0, 1, …, n - 1
Tensor arange(int64_t n, DType dtype = float32, std::source_location where = std::source_location::current());
// Random numbers from this thread's generator (see random.h), one stream a call. These are Tensors: where one
// enters a tree, it is a constant, with the same numbers in every step. For numbers that each step draws anew
// use randn_like, rand_like, normal, uniform or bernoulli (ops/ops.h).
/// Standard normal numbers.
Tensor randn(const Shape& shape, DType dtype = float32,
             std::source_location where = std::source_location::current());
/// Uniform numbers in [0, 1).
Tensor rand(const Shape& shape, DType dtype = float32,
            std::source_location where = std::source_location::current());
/// A matrix with ones on its diagonal.
Tensor eye(int64_t n, DType dtype = float32, std::source_location where = std::source_location::current());

/// The tensor of that shape whose elements `values` lists in row-major order; int64 where they are unsigned
/// integers of more than 8 bits. Throws ShapeError, and TypeError above 2^63 - 1.
template <class T>
Tensor tensor_from(std::span<const T> values, const Shape& shape,
                   std::source_location where = std::source_location::current());

namespace detail {
[[noreturn]] void throw_too_large(uint64_t value, const std::source_location& where);
[[noreturn]] void throw_too_large(long double value, const std::source_location& where);
/// Integers for which there is no dtype of their own: size_t, long long and others.
template <class T>
constexpr bool becomes_int64 = std::is_integral_v<T> && sizeof(T) > 1 &&
                               (std::is_unsigned_v<T> || (sizeof(T) == 8 && !std::is_same_v<T, int64_t>));
template <class T>
Tensor tensor_from_values(std::span<const T> values, const Shape& shape, const std::source_location& where) {
  if constexpr (becomes_int64<T>) {
    std::vector<int64_t> wide;
    wide.reserve(values.size());
    for (const T value : values) {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8)
        if (value > uint64_t{INT64_MAX}) throw_too_large(uint64_t{value}, where);
      wide.push_back(static_cast<int64_t>(value));
    }
    return tensor_from(std::span<const int64_t>(wide), shape, where);
  } else {
    return tensor_from(values, shape, where);
  }
}
}  // namespace detail

template <class T>
Tensor tensor_from(const std::vector<T>& values, const Shape& shape,
                   std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::unique_ptr<bool[]> plain(new bool[values.size()]);
    for (size_t i = 0; i < values.size(); ++i) plain[i] = values[i];
    return tensor_from(std::span<const bool>(plain.get(), values.size()), shape, where);
  } else {
    return detail::tensor_from_values(std::span<const T>(values), shape, where);
  }
}
template <class T>
requires std::is_arithmetic_v<T> Tensor
tensor_from(std::initializer_list<T> values, const Shape& shape,
            std::source_location where = std::source_location::current()) {
  return detail::tensor_from_values(std::span<const T>(values.begin(), values.size()), shape, where);
}
/// The same of shape [n].
template <class T>
Tensor tensor_from(const std::vector<T>& values,
                   std::source_location where = std::source_location::current()) {
  return tensor_from(values, {values.size()}, where);
}
template <class T, size_t N>
Tensor tensor_from(const std::array<T, N>& values, const Shape& shape,
                   std::source_location where = std::source_location::current()) {
  return detail::tensor_from_values(std::span<const T>(values), shape, where);
}

namespace detail {
template <class T>
using Plain = std::conditional_t<std::is_same_v<T, bool>, bool,
                                 std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>;
/// Fills a tensor of `dtype` from plain values, which must be representable (TypeError otherwise).
template <class P>
Tensor tensor_of(const P* values, const Shape& shape, DType dtype, const std::source_location& where);
[[noreturn]] void throw_ragged(const std::source_location& where);
template <class T>
Tensor tensor_of_list(std::span<const T> values, const Shape& shape, DType dtype,
                      const std::source_location& where) {
  std::unique_ptr<Plain<T>[]> plain(new Plain<T>[values.size()]);
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8)
      if (values[i] > uint64_t{INT64_MAX}) throw_too_large(uint64_t{values[i]}, where);
    plain[i] = static_cast<Plain<T>>(values[i]);
    if constexpr (std::is_same_v<T, long double>)
      if (std::isfinite(values[i]) && !std::isfinite(plain[i])) throw_too_large(values[i], where);
  }
  return tensor_of(plain.get(), shape, dtype, where);
}
}  // namespace detail

// A number that the dtype does not have is a TypeError.

/// A scalar, of rank 0.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T value, DType dtype = default_dtype<T>(),
                                               std::source_location where = std::source_location::current()) {
  return detail::tensor_of_list(std::span<const T>(&value, 1), {}, dtype, where);
}
/// `tensor({1.0f, 2.0f})` has shape [2].
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<T> values,
                                               DType dtype = default_dtype<T>(),
                                               std::source_location where = std::source_location::current()) {
  return detail::tensor_of_list(std::span<const T>(values.begin(), values.size()),
                                {static_cast<int64_t>(values.size())}, dtype, where);
}
/// `tensor({{1, 2}, {3, 4}})` has shape [2, 2]. Throws ShapeError if rows differ in length.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                                               DType dtype = default_dtype<T>(),
                                               std::source_location where = std::source_location::current()) {
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  const std::unique_ptr<T[]> values(new T[rows.size() * columns]);
  size_t count = 0;
  for (const auto& row : rows) {
    if (row.size() != columns) detail::throw_ragged(where);
    for (const T value : row) values[count++] = value;
  }
  return detail::tensor_of_list(std::span<const T>(values.get(), count),
                                {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)}, dtype,
                                where);
}
namespace detail {
/// Without a dtype, that of the numbers.
Tensor tensor_of_numbers(std::span<const ListedNumber> numbers, const Shape& shape,
                         std::optional<DType> dtype, const std::source_location& where);
}  // namespace detail
/// Lists of several types, `tensor({1, 2.5})`: float32 if any number is real, else int64. Templates, since a
/// column `{{1}, {2.5}}` is a list of numbers, too, and a function goes before a template.
template <class N = detail::ListedNumber>
Tensor tensor(std::initializer_list<std::type_identity_t<N>> values,
              std::source_location where = std::source_location::current()) {
  return detail::tensor_of_numbers({values.begin(), values.size()}, {values.size()}, {}, where);
}
template <class N = detail::ListedNumber>
Tensor tensor(std::initializer_list<std::type_identity_t<N>> values, DType dtype,
              std::source_location where = std::source_location::current()) {
  return detail::tensor_of_numbers({values.begin(), values.size()}, {values.size()}, dtype, where);
}
Tensor tensor(std::initializer_list<std::initializer_list<detail::ListedNumber>> rows,
              std::source_location where = std::source_location::current());
Tensor tensor(std::initializer_list<std::initializer_list<detail::ListedNumber>> rows, DType dtype,
              std::source_location where = std::source_location::current());
/// The same of rank 3.
template <class T>
requires std::is_arithmetic_v<T> Tensor
tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes,
       DType dtype = default_dtype<T>(), std::source_location where = std::source_location::current()) {
  const size_t rows = planes.size() ? planes.begin()->size() : 0;
  const size_t columns = rows ? planes.begin()->begin()->size() : 0;
  const std::unique_ptr<T[]> values(new T[planes.size() * rows * columns]);
  size_t count = 0;
  for (const auto& plane : planes) {
    if (plane.size() != rows) detail::throw_ragged(where);
    for (const auto& row : plane) {
      if (row.size() != columns) detail::throw_ragged(where);
      for (const T value : row) values[count++] = value;
    }
  }
  return detail::tensor_of_list(
      std::span<const T>(values.get(), count),
      {static_cast<int64_t>(planes.size()), static_cast<int64_t>(rows), static_cast<int64_t>(columns)}, dtype,
      where);
}
/// Lists of rank 3 of several types. A column of numbers of two types, `{{{1}, {2.5}}}`, may be of rank 2 as
/// well and does not compile.
Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<detail::ListedNumber>>> planes,
    std::source_location where = std::source_location::current());
Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<detail::ListedNumber>>> planes,
    DType dtype, std::source_location where = std::source_location::current());

}  // namespace espalier
