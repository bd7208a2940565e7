#include "espalier/core/dlpack.h"

#include <dlpack/dlpack.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "espalier/core/error.h"

namespace espalier {

namespace {

constexpr uint8_t dl_bool = 6;  // kDLBool, which older versions of the header lack

DLDataType dl_type(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::float16:
    case DType::float32:
    case DType::float64: return {kDLFloat, bits, 1};
    case DType::bfloat16: return {kDLBfloat, bits, 1};
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64: return {kDLInt, bits, 1};
    case DType::uint8: return {kDLUInt, bits, 1};
    case DType::boolean: return {dl_bool, bits, 1};
  }
  __builtin_unreachable();
}

DType dtype_from(const DLDataType& type) {
  for (const DType known : all_dtypes) {
    const DLDataType same = dl_type(known);
    if (type.code == same.code && type.bits == same.bits && type.lanes == same.lanes) return known;
  }
  throw TypeError(
      fmt::format("from_dlpack: there is no element type of code {}, {} bits and {} lanes; there are "
                  "float16, float32, float64, bfloat16, int8, uint8, int16, int32, int64 and bool",
                  type.code, type.bits, type.lanes));
}

Device device_from(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU: return cpu();
    case kDLCUDA:
    case kDLCUDAManaged: return gpu(device.device_id);
    case kDLCUDAHost:
      throw DeviceError(
          "from_dlpack: the memory is page-locked (kDLCUDAHost), and copies from it would not be waited for; "
          "copy the tensor to ordinary memory or to a GPU first");
    default:
      throw DeviceError(
          fmt::format("from_dlpack: memory of device type {} cannot be used, but that of the CPU "
                      "(1) and of CUDA (2, 13)",
                      static_cast<int>(device.device_type)));
  }
}

Layout layout_from(const DLTensor& from) {
  if (from.ndim < 0 || (from.ndim > 0 && !from.shape))
    throw ShapeError(fmt::format("from_dlpack: the tensor has {} axes and no sizes", from.ndim));
  const auto rank = static_cast<size_t>(from.ndim);
  Dims dims(from.shape, from.shape + rank);
  for (const int64_t size : dims)
    if (size < 0) throw ShapeError(fmt::format("from_dlpack: an axis has size {}", size));
  Layout layout{Shape(std::move(dims))};
  const int64_t elements = layout.shape.elements();  // throws if there are too many
  if (!from.strides) return layout;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (from.strides[axis] < 0 && layout.shape.dims()[axis] > 1)
      throw UnsupportedError(
          fmt::format("from_dlpack: axis {} of shape {} runs backwards (stride {}); copy the tensor first",
                      axis, layout.shape.str(), from.strides[axis]));
    // The stride of an axis with one index is never used.
    if (elements > 0 && layout.shape.dims()[axis] > 1) layout.strides[axis] = from.strides[axis];
  }
  return layout;
}

/// The elements from the first to the one behind the last.
int64_t reach_of(const Layout& layout) {
  int64_t reach = 1;
  for (size_t axis = 0; axis < layout.shape.rank(); ++axis) {
    const int64_t size = layout.shape.dims()[axis];
    int64_t step = 0;
    if (size == 0) return 0;
    if (__builtin_mul_overflow(size - 1, layout.strides[axis], &step) ||
        __builtin_add_overflow(reach, step, &reach))
      throw ShapeError("from_dlpack: the strides reach further than 64 bits can count");
  }
  return reach;
}

/// Memory of another library.
struct DlStorage : Storage {
  DLManagedTensor* from;
};

/// A tensor handed out, and what its struct points to.
struct DlExport {
  Tensor tensor;
  Dims shape, strides;
  DLManagedTensor managed{};
};

}  // namespace

Tensor from_dlpack(DLManagedTensor* from, std::source_location where) {
  return located(where, [&] {
    if (!from) throw Error("from_dlpack: there is no tensor");
    const DLTensor& given = from->dl_tensor;
    const DType dtype = dtype_from(given.dtype);
    const Device device = device_from(given.device);
    (void)backend(device);  // throws where there is none
    Layout layout = layout_from(given);
    const int64_t reach = reach_of(layout);
    int64_t bytes = 0;
    if (__builtin_mul_overflow(reach, static_cast<int64_t>(size_of(dtype)), &bytes))
      throw ShapeError("from_dlpack: the strides reach further than 64 bits can count");
    char* data = static_cast<char*>(given.data);
    if (data) data += given.byte_offset;
    if (!data && bytes > 0) throw Error("from_dlpack: the tensor has elements and no memory");
    if (reinterpret_cast<uintptr_t>(data) % size_of(dtype) != 0)
      throw UnsupportedError(
          fmt::format("from_dlpack: elements of {} must be aligned to {} bytes; copy the tensor first",
                      name(dtype), size_of(dtype)));
    auto storage = std::make_unique<DlStorage>();
    storage->data = data;
    storage->bytes = static_cast<size_t>(bytes);
    storage->device = device;
    storage->foreign = true;
    storage->from = from;
    storage->release = [](Storage* base) {
      const std::unique_ptr<DlStorage> own(static_cast<DlStorage*>(base));
      if (own->from->deleter) own->from->deleter(own->from);
    };
    return Tensor(StoragePtr(storage.release()), std::move(layout), dtype);
  });
}

DLManagedTensor* to_dlpack(const Tensor& tensor, std::source_location where) {
  return located(where, [&] {
    if (!tensor.defined()) throw TypeError("to_dlpack: the tensor is undefined");
    auto own = std::make_unique<DlExport>();
    own->tensor = tensor;
    own->shape = tensor.shape().dims();
    own->strides = tensor.strides();
    DLTensor& out = own->managed.dl_tensor;
    out.data = tensor.elements() ? tensor.address() : nullptr;  // some readers ignore `byte_offset`
    const Device device = tensor.device();
    out.device = {device.type == DeviceType::cpu ? kDLCPU : kDLCUDA,
                  device.type == DeviceType::cpu ? 0 : device.index};
    out.ndim = static_cast<int>(own->shape.size());
    out.dtype = dl_type(tensor.dtype());
    out.shape = own->shape.begin();
    out.strides = own->strides.begin();
    own->managed.manager_ctx = own.get();
    own->managed.deleter = [](DLManagedTensor* self) { delete static_cast<DlExport*>(self->manager_ctx); };
    return &own.release()->managed;
  });
}

}  // namespace espalier
