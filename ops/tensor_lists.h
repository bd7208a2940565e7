// Vectors of Tensors in place of vectors of Variables.
#pragma once
#include <concepts>
#include <cstdint>
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/layout.h"

namespace espalier {

// Templates, so that lists in braces are of Variables.

template <std::same_as<Tensor> T>
Variable concat(const std::vector<T>& tensors, int64_t axis = 0,
                std::source_location where = std::source_location::current()) {
  return concat(std::vector<Variable>(tensors.begin(), tensors.end()), axis, where);
}
template <std::same_as<Tensor> T>
Variable stack(const std::vector<T>& tensors, int64_t axis = 0,
               std::source_location where = std::source_location::current()) {
  return stack(std::vector<Variable>(tensors.begin(), tensors.end()), axis, where);
}

}  // namespace espalier
