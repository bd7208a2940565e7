#include "espalier/ops/functions/metrics.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/losses/checked_target.h"
#include "espalier/ops/losses/cross_entropy.h"
#include "espalier/ops/losses/labels.h"
#include "espalier/ops/ops.h"

namespace espalier {

Variable labels_of_rows(const Variable& logits, const Variable& labels, std::string_view op) {
  if (!is_real(logits.dtype()) || (labels.dtype() != int32 && labels.dtype() != int64))
    throw TypeError(fmt::format("{}: logits are real and labels integers, not {} and {}", op,
                                name(logits.dtype()), name(labels.dtype())));
  const auto fail = [&] {
    throw ShapeError(fmt::format(
        "{}: labels of shape {} do not go with logits of shape {}: logits are [..., classes], the classes "
        "last, and labels integers of [...] or [..., 1]",
        op, labels.shape().str(), logits.shape().str()));
  };
  if (logits.rank() == 0) fail();
  Shape rows(Dims(logits.shape().begin(), logits.shape().end() - 1)), columns = rows;
  columns.dims().push_back(1);
  if (labels.shape() == rows) return checked_labels(labels, logits, op);
  if (!(labels.shape() == columns)) fail();
  return checked_labels(squeeze(labels, {-1}), logits, op);
}

Variable accuracy(const Operand& logits, const Operand& labels) {
  const CallScope scope(logits.where());
  return located(*build_context().where, [&] {
    const Variable& x = logits.defined("accuracy");
    const Variable y = labels_of_rows(x, labels.defined("accuracy"), "accuracy");
    return mean(cast(equal(argmax(x, -1), cast(y, int64)), float64));
  });
}

Variable top_k_accuracy(const Operand& logits, const Operand& labels, int64_t k) {
  const CallScope scope(logits.where());
  return located(*build_context().where, [&] {
    const Variable x = stop_gradient(logits.defined("top_k_accuracy"));
    const Variable y = labels_of_rows(x, labels.defined("top_k_accuracy"), "top_k_accuracy");
    if (k < 1 || k > x.shape()[-1])
      throw Error(
          fmt::format("top_k_accuracy: k is {}; it must be from 1 to the {} classes", k, x.shape()[-1]));
    const Variable own = pick_for("top_k_accuracy", x, y);
    const Variable larger = sum(cast(greater(x, unsqueeze(own, -1)), int64), -1);
    return mean(cast(logical_and(less(larger, k), equal(own, own)), float64));
  });
}

}  // namespace espalier
