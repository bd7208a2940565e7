#include "espalier/ops/functions/standardize.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/widened.h"

namespace espalier {

Variable mean_variance_normalization(const Operand& x, const Axes& axes, double epsilon) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    constexpr std::string_view function = "mean_variance_normalization";
    const Variable& given = x.defined(function);
    check_dtype<Reals>({given.dtype(), given.shape()}, function);
    (void)axes.mask(given.rank(), function);
    if (!(epsilon >= 0))
      throw Error(fmt::format("{}: epsilon is {}; it must not be negative", function, epsilon));
    const Variable v = widened(given), centered = v - mean(v, axes, true);
    return rounded(centered / (std(v, axes, {.correction = 0, .keep_dims = true}) + epsilon), given.dtype());
  });
}

}  // namespace espalier
