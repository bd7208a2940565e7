#include "espalier/core/tensor.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "espalier/core/cpu/strided_loop.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/scalar.h"

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
    if (!defined()) throw TypeError(fmt::format("{}: the tensor is undefined", what));
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

size_t Tensor::position(std::initializer_list<int64_t> index, const Where& where) const {
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
    if (!defined()) throw TypeError("item: the tensor is undefined");
    if (elements() != 1)
      throw ShapeError(fmt::format("item: the shape {} has {} elements, not one", shape().str(), elements()));
    const Tensor host = to(cpu());
    return visit(dtype_, [&]<class E>(TypeTag<E>) {
      return scalar::Cast<T>()(*static_cast<const E*>(host.address()));
    });
  });
}
template float Tensor::item<float>(Where) const;
template double Tensor::item<double>(Where) const;
template int32_t Tensor::item<int32_t>(Where) const;
template int64_t Tensor::item<int64_t>(Where) const;
template bool Tensor::item<bool>(Where) const;

double Tensor::item(Where where) const { return item<double>(where); }

Tensor Tensor::reshape(const Shape& shape, Where where) const {
  return located(where, [&] {
    const Shape target = resolve(shape, elements(), "reshape");
    Layout layout;
    if (reshape_layout(layout_, target, layout)) return Tensor(storage_, std::move(layout), dtype_);
    return contiguous_copy().reshape(target);
  });
}

Tensor Tensor::slice(int64_t axis, int64_t begin, int64_t end, Where where) const {
  return located(where, [&] {
    const size_t a = resolve_axis(axis, rank(), "slice");
    const int64_t size = shape().dims()[a];
    const int64_t first = begin < 0 ? begin + size : begin, last = end < 0 ? end + size : end;
    if (first < 0 || last < first || last > size)
      throw IndexError(fmt::format("slice: {} to {} is outside axis {} of size {}", begin, end, a, size));
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
  if (device().type == DeviceType::cpu)
    copy_elements(*this, copy);
  else
    throw UnsupportedError(fmt::format("clone on {} is not supported", device().str()));
  return copy;
}

Tensor Tensor::to(Device target, Where where) const {
  if (!defined() || device() == target) return *this;
  return located(where, [&] {
    Backend& there = backend(target);
    const Tensor plain = contiguous_copy();
    if (device().type != DeviceType::cpu) {
      Tensor host(shape(), dtype_, cpu());
      backend(device()).copy_to_host(host.address(), plain.address(), bytes(), device());
      return host.to(target);
    }
    Tensor result(shape(), dtype_, target);
    there.copy_from_host(result.address(), plain.address(), bytes(), target);
    return result;
  });
}

Tensor Tensor::to(DType dtype) const {
  if (!defined() || dtype == dtype_) return *this;
  const Tensor from = to(cpu()).contiguous_copy();
  Tensor result(shape(), dtype, cpu());
  visit(dtype_, [&]<class From>(TypeTag<From>) {
    visit(dtype, [&]<class To>(TypeTag<To>) {
      const From* in = static_cast<const From*>(from.address());
      To* out = static_cast<To*>(result.address());
      const int64_t n = elements();
      for (int64_t i = 0; i < n; ++i) out[i] = scalar::Cast<To>()(in[i]);
    });
  });
  return result.to(device());
}

void copy_elements(const Tensor& from, Tensor& to) {
  if (from.contiguous() && to.contiguous()) {
    if (from.bytes()) std::memcpy(to.address(), from.address(), from.bytes());
    return;
  }
  visit(from.dtype(), [&]<class T>(TypeTag<T>) {
    StridedLoop<2> loop(from.shape(), {&to.strides(), &from.strides()});
    T* out = static_cast<T*>(to.address());
    const T* in = static_cast<const T*>(from.address());
    loop.run([&](int64_t n, std::array<int64_t, 2> at, std::array<int64_t, 2> step) {
      for (int64_t i = 0; i < n; ++i) out[at[0] + i * step[0]] = in[at[1] + i * step[1]];
    });
  });
}

}  // namespace espalier
