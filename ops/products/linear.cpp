#include "espalier/ops/functions/linear.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

Variable linear(const Operand& x, const Operand& weight, const Variable& bias) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable &rows = x.defined("linear"), &w = weight.defined("linear");
    check_dtype<Reals>({rows.dtype(), rows.shape()}, "linear");
    check_same_dtype({rows.dtype(), rows.shape()}, {w.dtype(), w.shape()}, "linear");
    if (w.rank() == 0 || w.rank() > 2 || rows.rank() == 0 || rows.shape()[-1] != w.shape()[-1])
      throw ShapeError(
          fmt::format("linear: rows of shape {} do not go with a weight of shape {}: [..., in] "
                      "takes [out, in] or [in]{}",
                      rows.shape().str(), w.shape().str(),
                      w.rank() ? open_note(rows.shape(), Shape{w.shape()[-1]}) : ""));
    const Variable matrix = w.rank() == 2 ? transpose(w) : unsqueeze(w, 1);
    Variable y = rows.rank() > 1 ? matmul(rows, matrix) : squeeze(matmul(unsqueeze(rows, 0), matrix), 0);
    if (w.rank() == 1) y = squeeze(y, -1);
    if (!bias.defined()) return y;
    check_same_dtype({rows.dtype(), rows.shape()}, {bias.dtype(), bias.shape()}, "linear");
    if (!(broadcast(y.shape(), bias.shape(), "linear") == y.shape()))
      throw ShapeError(fmt::format("linear: a bias of shape {} is not broadcast to the result {}",
                                   bias.shape().str(), y.shape().str()));
    return y + bias;
  });
}

}  // namespace espalier
