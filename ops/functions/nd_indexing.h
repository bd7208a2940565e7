// Elements and slices at indices along several axes at once.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// The last axis of `indices` [..., k] (int32 or int64, TypeError) has an index for each of the first k axes
// of `x`, where 1 <= k <= rank (ShapeError). Negative ones count from the end; one outside is an IndexError.

/// x[indices[…, 0], …, indices[…, k − 1]]: the leading axes of `indices`, followed by the others of `x`.
/// ONNX's GatherND.
Variable gather_nd(const Operand& x, const Operand& indices);
/// `x` with `values` in those places, to whose shape they are broadcast. Where one place is named more than
/// once, the last value stays. ONNX's ScatterND.
Variable scatter_nd(const Operand& x, const Operand& indices, const Operand& values);
/// The same, with `values` added to what is there; all count where a place is named more than once. Numbers,
/// no bool.
Variable scatter_nd_add(const Operand& x, const Operand& indices, const Operand& values);

}  // namespace espalier
