// DLPack: tensors that share their memory with other libraries. The structs are those of <dlpack/dlpack.h>,
// which only programs that look into them include.
#pragma once
#include <source_location>

#include "espalier/core/tensor.h"

struct DLManagedTensor;

namespace espalier {

/// A Tensor over the memory of a DLPack tensor, with its shape, strides and dtype, in ordinary memory
/// (`kDLCPU`) or in that of a GPU (`kDLCUDA`, `kDLCUDAManaged`). It takes over `from`, whose deleter is
/// called when no Tensor uses the memory any more, in the thread that drops the last one. Operations never
/// write over the memory; what writes into the Tensor, such as `span`, or an optimizer where it is a
/// parameter's value, does. On a GPU the data must be complete for work in `cuda_stream(device)`. Throws
/// TypeError for element types that Espalier has not, DeviceError for other devices, ShapeError for
/// impossible shapes, UnsupportedError for negative strides or elements that are not aligned to their size,
/// and Error for null; then `from` is still the caller's.
Tensor from_dlpack(DLManagedTensor* from, std::source_location where = std::source_location::current());

/// A DLPack tensor over the memory of a Tensor: the caller, or the library that gets it, must call its
/// deleter once, from any thread. Until then the memory is kept. On a GPU the elements are complete when the
/// work that is in `cuda_stream(device)` now is done; and the consumer's work must be done, or be waited for
/// by that stream, when the deleter is called. Throws TypeError for an undefined Tensor.
DLManagedTensor* to_dlpack(const Tensor& tensor,
                           std::source_location where = std::source_location::current());

}  // namespace espalier
