// The pseudoinverse as a value with a gradient of its own.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// `value`, which is the pseudoinverse of `a`, with that gradient with respect to `a`. A view.
Variable pinv_with_gradient(const Variable& value, const Variable& a);

}  // namespace espalier
