// How values that are computed from a part of a batch grow with the number of its rows.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/op.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// 0 like a mean; negative: like what is divided by a sum; and this in another way. It is twice the power of
/// the number of rows, so that a norm, the root of a sum, has one.
inline constexpr int8_t growth_of_sum = 2, unknown_growth = 100;

/// How what an op computes grows, from how the operands that it reads do.
int8_t joint_growth(const Op& op, const std::vector<int8_t>& operands);
/// Whether constants beside a sum guard it, as in max(count, 1) and sum + 1e-6, and do not change how it
/// grows.
bool takes_guards(const Op& op);
int8_t sum_of_growths(int8_t a, int8_t b);
/// How much faster what an op takes over as many axes of rows grows than they do: a sum as a sum for each.
int8_t growth_over_rows(const Op& op, const InputSpecs& in, int axes);
/// How what the i-th node of both graphs computes from shapes alone grows, such as a number of rows.
int8_t growth_of_shapes(const Graph& part, const Graph& other, uint32_t i, BatchSizes sizes);

}  // namespace espalier
