// Whether values are finite, for what looks for the first that is not: FindNan and the plans of find_nan.
#pragma once
#include <cstdint>

#include "espalier/core/node.h"

namespace espalier {

/// What is least welcome among the elements of a value.
enum class Content : uint8_t { finite, infinite, nan };
Content content_of(const Tensor& value);

/// Throws NumericError if the results of a node's kernel have what no operand has.
void check_finite(const Node& node, const KernelCall& call);

}  // namespace espalier
