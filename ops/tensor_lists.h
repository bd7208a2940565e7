// Vectors of Tensors in place of vectors of Variables.
#pragma once
#include <concepts>
#include <cstdint>
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/layout.h"

namespace espalier {

namespace detail {
inline std::vector<Variable> constants(const std::vector<Tensor>& tensors,
                                       const std::source_location& where) {
  std::vector<Variable> constants;
  constants.reserve(tensors.size());
  for (const Tensor& tensor : tensors) constants.emplace_back(tensor, where);
  return constants;
}
}  // namespace detail

// Templates, so that lists in braces are of Variables.

template <std::same_as<Tensor> T>
Variable concat(const std::vector<T>& tensors, int64_t axis = 0,
                std::source_location where = std::source_location::current()) {
  return concat(detail::constants(tensors, where), axis, where);
}
template <std::same_as<Tensor> T>
Variable stack(const std::vector<T>& tensors, int64_t axis = 0,
               std::source_location where = std::source_location::current()) {
  return stack(detail::constants(tensors, where), axis, where);
}

}  // namespace espalier
