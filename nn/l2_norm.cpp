#include "espalier/nn/l2_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/function_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

L2Norm::L2Norm(int64_t axis, double epsilon, Where where)
    : LayerOf(located(where, [&] {
        if (!(epsilon > 0)) throw Error(fmt::format("L2Norm: epsilon is {}; it must be above 0", epsilon));
        return layer_of("L2Norm", [axis, epsilon](const Variable& x) {
          const auto rank = static_cast<int64_t>(x.rank());
          if (axis < -rank || axis >= rank)
            throw ShapeError(
                fmt::format("L2Norm: an input of shape {} has no axis {}", x.shape().str(), axis));
          const Variable wide = widened(x);
          // The square is bounded, since the root has no slope at 0.
          const Variable square_sum = maximum(sum(square(wide), axis, true), epsilon * epsilon);
          return cast(wide / sqrt(square_sum), x.dtype());
        });
      })) {}

}  // namespace espalier::nn
