// The op that converts the element type, for passes.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

OpPtr cast_op(DType to);

}  // namespace espalier
