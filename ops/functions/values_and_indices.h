// What operations return that select elements along an axis.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

struct ValuesAndIndices {
  Variable values;   ///< of the dtype of the operand
  Variable indices;  ///< int64: where along the axis the values stand
};

}  // namespace espalier
