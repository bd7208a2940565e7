#include "espalier/core/tensor.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier {

Tensor::Tensor(const Shape& shape, DType dtype, Device device)
    : layout_(shape), dtype_(dtype), device_(device) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.elements(), static_cast<int64_t>(size_of(dtype)), &bytes))
    throw ShapeError(fmt::format("a tensor of shape {} has more bytes than 64 bits can count", shape.str()));
  try {
    storage_ = StoragePtr(backend(device).allocate(static_cast<size_t>(bytes), device));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(
        fmt::format("a tensor of shape {} and dtype {}: {}", shape.str(), name(dtype), error.what()));
  }
}

void Tensor::throw_type(DType wanted, const Where& where) const {
  located(where, [&] {
    if (!defined()) throw TypeError("the tensor has no elements to give: it is undefined");
    throw TypeError(fmt::format("elements of type {} asked of a tensor of {}", name(wanted), name(dtype_)));
  });
  __builtin_unreachable();
}

void Tensor::check_host(const char* what, const Where& where) const {
  located(where, [&] {
    check_defined(what);
    if (device().type != DeviceType::cpu)
      throw DeviceError(
          fmt::format("{}: the tensor is on {}; copy it with to(cpu()) first", what, device().str()));
  });
}

void Tensor::check_contiguous(const char* what, const Where& where) const {
  if (contiguous()) return;
  located(where, [&] {
    throw ShapeError(
        fmt::format("{}: a view of shape {} has gaps; take a clone() of it first", what, shape().str()));
  });
}

size_t Tensor::position(std::initializer_list<ListedInteger> index, const Where& where) const {
  return located(where, [&] {
    if (index.size() != rank())
      throw IndexError(fmt::format("at: {} indices for the shape {}", index.size(), shape().str()));
    int64_t position = layout_.offset;
    size_t axis = 0;
    for (int64_t i : index) {
      const int64_t size = shape().dims()[axis];
      if (i < -size || i >= size)
        throw IndexError(fmt::format("at: index {} is outside axis {} of size {}", i, axis, size));
      position += (i < 0 ? i + size : i) * strides()[axis++];
    }
    return static_cast<size_t>(position);
  });
}

template <class T>
T Tensor::item(Where where) const {
  return located(where, [&] {
    check_defined("item");
    if (elements() != 1)
      throw ShapeError(fmt::format("item: the shape {} has {} elements, not one", shape().str(), elements()));
    const Tensor host = to(cpu());
    T number;
    cast_row(dtype_, dtype_of<T>())(1, &number, host.address(), 1);
    return number;
  });
}
template float Tensor::item<float>(Where) const;
template double Tensor::item<double>(Where) const;
template int32_t Tensor::item<int32_t>(Where) const;
template int64_t Tensor::item<int64_t>(Where) const;
template bool Tensor::item<bool>(Where) const;
template Float16 Tensor::item<Float16>(Where) const;
template BFloat16 Tensor::item<BFloat16>(Where) const;
template int8_t Tensor::item<int8_t>(Where) const;
template uint8_t Tensor::item<uint8_t>(Where) const;
template int16_t Tensor::item<int16_t>(Where) const;

double Tensor::item(Where where) const { return item<double>(where); }

template <class T>
std::vector<T> Tensor::to_vector(Where where) const {
  return located(where, [&] {
    check_defined("to_vector");
    const Tensor host = to(cpu()).contiguous_copy();
    const auto count = static_cast<size_t>(elements());
    const auto convert = cast_row(dtype_, dtype_of<T>());
    if constexpr (std::is_same_v<T, bool>) {
      const std::unique_ptr<bool[]> plain(new bool[count]);
      convert(elements(), plain.get(), host.address(), 1);
      return std::vector<bool>(plain.get(), plain.get() + count);
    } else {
      std::vector<T> values(count);
      convert(elements(), values.data(), host.address(), 1);
      return values;
    }
  });
}
template std::vector<float> Tensor::to_vector(Where) const;
template std::vector<double> Tensor::to_vector(Where) const;
template std::vector<int32_t> Tensor::to_vector(Where) const;
template std::vector<int64_t> Tensor::to_vector(Where) const;
template std::vector<bool> Tensor::to_vector(Where) const;
template std::vector<Float16> Tensor::to_vector(Where) const;
template std::vector<BFloat16> Tensor::to_vector(Where) const;
template std::vector<int8_t> Tensor::to_vector(Where) const;
template std::vector<uint8_t> Tensor::to_vector(Where) const;
template std::vector<int16_t> Tensor::to_vector(Where) const;

void Tensor::check_defined(const char* what) const {
  if (!defined()) throw TypeError(fmt::format("{}: the tensor is undefined", what));
}

Tensor::RowIterator Tensor::begin() const {
  check_defined("begin");
  if (rank() == 0) throw ShapeError("begin: the tensor is a scalar, which has no rows");
  return {this, 0};
}
Tensor::RowIterator Tensor::end() const { return {this, rank() == 0 ? 0 : shape().dims()[0]}; }

void Tensor::copy_from(const Tensor& from, Where where) {
  located(where, [&] {
    check_defined("copy_from");
    from.check_defined("copy_from");
    if (from.dtype() != dtype_)
      throw TypeError(fmt::format("copy_from: elements of {} for a tensor of {}; convert them by to()",
                                  name(from.dtype()), name(dtype_)));
    if (!(broadcast(from.shape(), shape(), "copy_from") == shape()))
      throw ShapeError(fmt::format("copy_from: the shape {} cannot be broadcast to {}", from.shape().str(),
                                   shape().str()));
    const Tensor source = from.storage().get() == storage_.get() ? from.clone() : from;
    copy_elements(Tensor(source.storage(), broadcast_layout(source.layout(), shape()), dtype_), *this);
  });
}

void Tensor::fill(detail::Number value, Where where) {
  located(where, [&] {
    check_defined("fill");
    const Tensor number = value.as(dtype_).to(device());
    copy_elements(Tensor(number.storage(), broadcast_layout(number.layout(), shape()), dtype_), *this);
  });
}

Tensor Tensor::reshape(const Shape& shape, Where where) const {
  return located(where, [&] {
    check_defined("reshape");
    const Shape target = resolve(shape, elements(), "reshape");
    Layout layout;
    if (reshape_layout(layout_, target, layout)) return Tensor(storage_, std::move(layout), dtype_);
    return contiguous_copy().reshape(target);
  });
}

Tensor Tensor::operator[](const RowNumber& row) const {
  return located(row.where, [&] {
    check_defined("[]");
    if (rank() == 0) throw ShapeError(fmt::format("[{}]: the tensor is a scalar", row.number));
    const int64_t size = shape().dims()[0], at = row.number < 0 ? row.number + size : row.number;
    if (at < 0 || at >= size)
      throw IndexError(
          fmt::format("[{}]: the first axis of {} has {} elements", row.number, shape().str(), size));
    const std::span<const int64_t> sizes = shape().dims(), strides = layout_.strides;
    Layout layout(Shape(Dims(sizes.begin() + 1, sizes.end())));
    layout.strides = Dims(strides.begin() + 1, strides.end());
    layout.offset = layout_.offset + at * strides[0];
    return Tensor(storage_, std::move(layout), dtype_);
  });
}
Tensor Tensor::slice(int64_t axis, int64_t begin, int64_t end, Where where) const {
  return located(where, [&] {
    check_defined("slice");
    const size_t a = resolve_axis(axis, rank(), "slice");
    const int64_t size = shape().dims()[a];
    const int64_t first = begin < 0 ? begin + size : begin, last = end < 0 ? end + size : end;
    if (first < 0 || last < first || last > size)
      throw IndexError(
          fmt::format("slice: {} to {} is outside axis {} of size {}", begin, end, a, size_text(size)));
    Layout layout = layout_;
    layout.shape.dims()[a] = last - first;
    layout.offset += first * layout.strides[a];
    return Tensor(storage_, std::move(layout), dtype_);
  });
}

Tensor Tensor::contiguous_copy() const { return contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor copy(shape(), dtype_, device());
  copy_elements(*this, copy);
  return copy;
}

Tensor Tensor::to(Device target, Where where) const {
  if (!defined() || device() == target) return *this;
  return located(where, [&] {
    (void)backend(target);  // throws where there is none
    Tensor result(shape(), dtype_, target);
    copy_elements(*this, result);
    return result;
  });
}

Tensor Tensor::to(DType dtype) const {
  if (!defined() || dtype == dtype_) return *this;
  const Tensor from = to(cpu()).contiguous_copy();
  Tensor result(shape(), dtype, cpu());
  if (elements() > 0) cast_row(dtype_, dtype)(elements(), result.address(), from.address(), 1);
  return result.to(device());
}

void copy_elements(const Tensor& from, Tensor& to) {
  const bool from_host = from.device().type == DeviceType::cpu, to_host = to.device().type == DeviceType::cpu;
  if ((from_host && to_host) || from.device() == to.device()) return backend(to.device()).copy(from, to);
  if (!to.contiguous()) {
    Tensor there(to.shape(), to.dtype(), to.device());
    copy_elements(from, there);
    return backend(to.device()).copy(there, to);
  }
  const Tensor plain = from.contiguous_copy();
  if (plain.bytes() == 0) return;
  if (from_host)
    return backend(to.device()).copy_from_host(to.address(), plain.address(), to.bytes(), to.device());
  if (to_host)
    return backend(from.device()).copy_to_host(to.address(), plain.address(), to.bytes(), from.device());
  Tensor host(to.shape(), to.dtype());
  copy_elements(plain, host);
  copy_elements(host, to);
}

void zero_elements(Tensor& to) { backend(to.device()).zero(to); }

}  // namespace espalier
