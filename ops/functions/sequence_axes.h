// Sequences of several lengths in one batch.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// `x` with the first lengths[b] elements of the time axis in reverse order, for each position b of the batch
/// axis; what follows them stays. `lengths` [batch] are int32 or int64 (TypeError). ONNX's ReverseSequence.
/// ShapeError for other shapes or one axis for both, IndexError for a length outside.
Variable reverse_sequence(const Operand& x, const Operand& lengths, int64_t time_axis = 0,
                          int64_t batch_axis = 1);

}  // namespace espalier
