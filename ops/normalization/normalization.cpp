#include "espalier/ops/functions/normalization.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier {

Variable normalize(const Operand& x, const NormalizeOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& from = x.defined("normalize");
    if (!(options.p > 0)) throw Error(fmt::format("normalize: p is {}; it is above 0", options.p));
    const Variable wide = widened(from);
    const Variable length = norm(wide, {options.axis}, {.p = options.p, .keep_dims = true});
    return rounded(wide / maximum(length, options.epsilon), from.dtype());
  });
}

Variable local_response_norm(const Operand& x, const LocalResponseOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& from = x.defined("local_response_norm");
    if (from.rank() < 2)
      throw ShapeError(
          fmt::format("local_response_norm: x of shape {} has no axis 1 of channels", from.shape().str()));
    if (options.size < 1)
      throw Error(fmt::format("local_response_norm: a neighbourhood of {} channels", options.size));
    std::vector<Padding> paddings(from.rank() - 1);
    paddings[0] = {options.size / 2, (options.size - 1) / 2};
    const Variable wide = widened(from), squares = pad(square(wide), paddings);
    const Variable sums = sum(sliding_windows(squares, 1, options.size), {-1});
    const double each = options.alpha / static_cast<double>(options.size);
    return rounded(wide / power(sums * each + options.k, options.beta), from.dtype());
  });
}

}  // namespace espalier
