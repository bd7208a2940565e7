// Workspace: scratch memory of a kernel.
#pragma once
#include "espalier/core/bind_context.h"
#include "espalier/core/storage.h"
#include "espalier/core/tensor.h"

namespace espalier {

/// The scratch memory of a call that is being bound. In a plan it is a region of the arena, which other
/// values use before and after the call: what is written there lasts as long as one run of the kernel. A
/// kernel takes parts of its own copy, so that another try begins at the start again.
class Workspace {
 public:
  /// No region: all memory comes from the allocator.
  Workspace() = default;
  /// A contiguous tensor, aligned to buffer_alignment.
  explicit Workspace(Tensor region) : region_(std::move(region)) {}
  /// What the runtime offers to the kernel being bound; without a region if it offers none, as in eager
  /// evaluation.
  static Workspace of(const BindContext& context) {
    const Workspace* offered = context.find<Workspace>();
    return offered ? *offered : Workspace();
  }

  /// The bytes that a part takes of a region.
  static int64_t bytes_for(const Spec& spec) { return aligned_bytes(spec.bytes()); }
  /// A contiguous tensor with undefined content: the next part of the region or, if too little of that is
  /// left, new memory on the device. Throws OutOfMemory.
  Tensor take(const Shape& shape, DType dtype, Device device);

 private:
  Tensor region_;
  int64_t used_ = 0;
};

}  // namespace espalier
