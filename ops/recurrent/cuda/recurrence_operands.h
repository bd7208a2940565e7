// Operands of recurrences on a GPU, of which some may be absent.
#pragma once
#include <optional>

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/recurrent/recurrence_call.h"

namespace espalier::cu {

/// An input that may be absent, contiguous.
class OptionalInput {
 public:
  explicit OptionalInput(const Tensor* given) {
    if (given) input_.emplace(*given);
  }
  void refresh() {
    if (input_) input_->refresh();
  }
  template <class T>
  const T* start(const T* otherwise = nullptr) const {
    return input_ ? static_cast<const T*>(input_->address()) : otherwise;
  }

 private:
  std::optional<ContiguousInput> input_;
};

/// Null for an absent output.
template <class T>
T* target(Tensor* tensor) {
  return tensor ? static_cast<T*>(tensor->address()) : nullptr;
}
inline void copy_or_zero(const Tensor* from, Tensor& to) {
  from ? copy_elements(*from, to) : zero_elements(to);
}

}  // namespace espalier::cu
