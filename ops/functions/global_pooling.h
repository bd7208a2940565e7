// Global pooling: a whole plane of [batch, channels, sizes…], of any number of sizes, becomes one element.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// The largest element of each plane: [batch, channels, 1, …]. The gradient goes to all equal elements alike,
/// as that of max. ShapeError unless there is an axis behind the channels, and for planes without elements.
Variable global_max_pool(const Operand& x);
/// The mean of each plane. Throws as global_max_pool; TypeError for integers.
Variable global_avg_pool(const Operand& x);
/// The p-norm of each plane. Throws as global_avg_pool; Error unless p is finite and above 0.
Variable global_lp_pool(const Operand& x, double p = 2);

}  // namespace espalier
