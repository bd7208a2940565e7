#include <fmt/format.h>

#include "espalier/ops/ctc/ctc_ops.h"
#include "espalier/ops/functions/ctc.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/losses/loss_terms.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

void check_integers(const Variable& x, const char* which) {
  if (x.dtype() != int32 && x.dtype() != int64)
    throw TypeError(fmt::format("ctc_loss: {} must be int32 or int64, not {}", which, name(x.dtype())));
}

/// Throws ShapeError unless there are as many concatenated labels as `lengths` add up to. Checks nothing if
/// the lengths are not computed yet, or not on the host.
void check_number(const Variable& labels, const Variable& lengths) {
  const Node& node = *lengths.node();
  if (node.lazy || node.waits || !node.has_value() || lengths.device().type != DeviceType::cpu) return;
  const Tensor each = lengths.value().to(int64).contiguous_copy();
  const int64_t given = labels.shape()[0];
  int64_t needed = 0;
  for (const int64_t length : each.span<int64_t>()) {
    if (length < 0)
      throw IndexError(fmt::format("ctc_loss: a target length of {}; it must not be negative", length));
    if (__builtin_add_overflow(needed, length, &needed))
      throw ShapeError(
          fmt::format("ctc_loss: {} labels behind each other, and a length of {}", given, length));
  }
  if (needed != given)
    throw ShapeError(fmt::format("ctc_loss: {} labels behind each other, but the target lengths add up to {}",
                                 given, needed));
}

/// Labels that are behind each other, as rows: behind its own ones a row has any label.
Variable labels_by_row(const Variable& labels, const Variable& lengths) {
  if (labels.shape()[0] == 0) return cast(slice(unsqueeze(lengths, 1), 1, 0, 0), labels.dtype());
  const Variable counts = cast(lengths, int64), first = unsqueeze(cumsum(counts) - counts, 1);
  const Variable at = unsqueeze(positions_like(labels, 0), 0);
  const Variable places = where(at < unsqueeze(counts, 1), first + at, zeros_like(first + at));
  return gather(labels, checked_indices(places, labels, 0, false, "ctc_loss"));
}

}  // namespace

Variable ctc_loss(const Operand& log_probabilities, const Operand& targets, const Operand& input_lengths,
                  const Operand& target_lengths, const CtcOptions& options) {
  const CallScope scope(log_probabilities.where());
  return located(log_probabilities.where(), [&] {
    const Variable& given = log_probabilities.defined("ctc_loss");
    detail::check_real("ctc_loss", given);
    Variable labels = targets.defined("ctc_loss"), inputs = input_lengths.defined("ctc_loss"),
             lengths = target_lengths.defined("ctc_loss");
    check_integers(labels, "targets");
    check_integers(inputs, "input lengths");
    check_integers(lengths, "target lengths");
    const bool one = given.rank() == 2;
    const size_t rank = one ? 0 : 1;
    if ((!one && given.rank() != 3) || inputs.rank() != rank || lengths.rank() != rank || labels.rank() < 1 ||
        labels.rank() > rank + 1)
      throw ShapeError(fmt::format(
          "ctc_loss: log-probabilities {}, which are [steps, batch, classes] or "
          "[steps, classes], targets {}, lengths {} and {}",
          given.shape().str(), labels.shape().str(), inputs.shape().str(), lengths.shape().str()));
    const int64_t batch = one ? 1 : given.shape()[1];
    if (!one && (inputs.shape()[0] != batch || lengths.shape()[0] != batch ||
                 (labels.rank() == 2 && labels.shape()[0] != batch)))
      throw ShapeError(fmt::format(
          "ctc_loss: log-probabilities {}, which are [steps, batch, classes], targets {}, "
          "lengths {} and {}: they differ in the batch",
          given.shape().str(), labels.shape().str(), inputs.shape().str(), lengths.shape().str()));
    Variable x = widened(given);
    if (one) {
      x = unsqueeze(x, 0), labels = unsqueeze(labels, 0);
      inputs = unsqueeze(inputs, 0), lengths = unsqueeze(lengths, 0);
    } else {
      x = permute(x, {1, 0, 2});
      if (labels.rank() == 1) {
        check_number(labels, lengths);
        labels = labels_by_row(labels, lengths);
      }
    }
    Variable losses = apply(ctc_loss_op({options.blank, options.zero_infinity}),
                            {&x, &labels, &inputs, &lengths}, log_probabilities.where());
    if (options.reduction == LossReduction::mean)
      losses = losses / cast(maximum(lengths, ones_like(lengths)), losses.dtype());
    if (one) losses = squeeze(losses, 0);
    return rounded(detail::weighted("ctc_loss", losses, options.weights, options.reduction), given.dtype());
  });
}

}  // namespace espalier
