#include "espalier/ops/functions/pair_distances.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/distance.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

Variable pdist(const Operand& x, double p) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& rows = x.defined("pdist");
    check_dtype<Reals>({rows.dtype(), rows.shape()}, "pdist");
    if (rows.rank() != 2)
      throw ShapeError(fmt::format("pdist: takes rows [n, d], not {}", rows.shape().str()));
    if (!(p > 0)) throw Error(fmt::format("pdist: p is {}; a norm has p above 0", p));
    return gather(flatten(cdist(rows, rows, p)), pair_positions_like(rows));
  });
}

}  // namespace espalier
