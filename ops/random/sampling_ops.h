// What the ops of sampling.h have in common with their kernels on devices.
#pragma once
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/sampling.h"

namespace espalier {

template <class Distribution>
inline constexpr std::string_view sampling_name;
template <>
inline constexpr std::string_view sampling_name<sampling::Poisson> = "poisson";
template <>
inline constexpr std::string_view sampling_name<sampling::Gamma> = "gamma";

/// `width` is 0 where the interval has no probability.
sampling::TruncatedNormal truncated_normal(double low, double high);
sampling::UniformInteger uniform_integer(int64_t low, int64_t high);
OpPtr multinomial_op(int64_t count, bool replacement);

}  // namespace espalier
