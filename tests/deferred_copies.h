// Ops under a Deferred: several copies of an expression, with other data, against the same computed eagerly.
#pragma once
#include "testing.h"

namespace espalier::testing {

/// Computes copies of a case on a device, deferred and eager: with inputs of their own, and with each input
/// in turn as one that all copies share. Values and first derivatives by the inputs in `differentiable` must
/// agree up to `tolerance`, and second ones if the case has them. On GPUs inputs are not shared, and second
/// derivatives are left out.
void check_deferred(const OpCase& c, const std::vector<size_t>& differentiable, Device device,
                    double tolerance);

}  // namespace espalier::testing
