// How values that are computed from a part of a batch grow with the number of its rows.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/op.h"

namespace espalier {

/// 0 like a mean, 1 like a sum, -1 like what is divided by a sum, and this in another way.
inline constexpr int8_t unknown_growth = 100;

/// How what an op computes grows, from how the operands that it reads do.
int8_t joint_growth(const Op& op, const std::vector<int8_t>& operands);
/// Whether constants beside a sum guard it, as in max(count, 1) and sum + 1e-6, and do not change how it
/// grows.
bool takes_guards(const Op& op);
/// Whether it adds up elements of its operands: what comes of rows grows with them.
bool adds_up(const Op& op, const InputSpecs& in);

}  // namespace espalier
