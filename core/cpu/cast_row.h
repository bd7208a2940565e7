// Conversion of elements on the CPU.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// The loop of scalar::Cast between any two element types.
UnaryRow cast_row(DType from, DType to);

/// Whether elements of that type can be exactly `number`.
bool has_number(DType dtype, double number);

}  // namespace espalier
