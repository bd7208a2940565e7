// Losses, composed of other ops. 16-bit operands are computed in float32, and the result is rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/ops/functions/losses.h"
#include "espalier/ops/losses/checked_target.h"
#include "espalier/ops/losses/cross_entropy.h"
#include "espalier/ops/losses/loss_terms.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

using detail::reduced;

namespace {

/// The operation that a user called, and with what.
enum class Scores : uint8_t { logits, log_probabilities, probabilities };

/// Cross entropy of rows along the last axis.
class CrossEntropy {
 public:
  CrossEntropy(std::string_view loss, Scores scores, const Variable& x, const Variable& labels,
               const CrossEntropyOptions& options)
      : loss_(loss), scores_(scores), x_(x), y_(labels), options_(options) {
    if (x_.rank() == 0) throw_shapes();
    if (!(options_.label_smoothing >= 0 && options_.label_smoothing <= 1))
      throw Error(
          fmt::format("{}: label_smoothing is {}; it must be from 0 to 1", loss_, options_.label_smoothing));
    const Variable& w = options_.class_weights;
    if (w.defined() && !(w.shape() == Shape{x_.shape()[-1]}))
      throw ShapeError(fmt::format("{}: class weights of shape {} do not go with {} of shape {}", loss_,
                                   w.shape().str(), noun(), x_.shape().str()));
    if (w.defined() && !is_real(w.dtype()))
      throw TypeError(fmt::format("{}: class weights are real numbers, not {}", loss_, name(w.dtype())));
    if (w.defined()) check_weights(w);
  }

  Variable result() {
    wide_ = widened(x_);
    if (options_.class_weights.defined()) weights_ = rounded(options_.class_weights, wide_.dtype());
    return rounded(is_real(y_.dtype()) ? of_probabilities() : of_classes(), x_.dtype());
  }

 private:
  std::string_view noun() const {
    return scores_ == Scores::logits              ? "logits"
           : scores_ == Scores::log_probabilities ? "log probabilities"
                                                  : "probabilities";
  }
  Variable log_probabilities(const Variable& x) const {
    return scores_ == Scores::logits              ? log_softmax(x)
           : scores_ == Scores::log_probabilities ? x
                                                  : detail::bounded_log(x);
  }
  /// Weights of a step are known in that step only.
  void check_weights(const Variable& w) const {
    if (w.node()->lazy) return;
    const Tensor weights = w.value().to(cpu()).to(float64).contiguous_copy();
    for (const double weight : weights.span<double>())
      if (!(weight >= 0 && std::isfinite(weight)))
        throw Error(
            fmt::format("{}: {} is no class weight: these are finite and not negative", loss_, weight));
  }
  [[noreturn]] void throw_shapes() const {
    throw ShapeError(fmt::format("{}: labels of shape {} and dtype {} do not go with {} of shape {}{}", loss_,
                                 y_.shape().str(), name(y_.dtype()), noun(), x_.shape().str(), advice()));
  }
  std::string advice() const {
    const bool reals = is_real(y_.dtype());
    if (!reals && y_.shape() == x_.shape())
      return fmt::format(
          "; probabilities and one-hot rows are reals: cast(labels, {}); numbers of classes have no axis of "
          "classes: argmax(labels, -1)",
          name(x_.dtype()));
    if (reals && y_.rank() + 1 == x_.rank()) return "; numbers of classes are integers: cast(labels, int64)";
    return "";
  }

  Variable of_probabilities() {
    if (!(y_.shape() == x_.shape())) throw_shapes();
    if (options_.ignored_label)
      throw Error(fmt::format("{}: ignored_label is for labels of integers; these are probabilities", loss_));
    const Variable log_p = log_probabilities(wide_);
    Variable p = rounded(widened(checked_target(y_, x_, loss_)), log_p.dtype());
    const double smoothing = options_.label_smoothing;
    if (smoothing > 0) p = p * (1 - smoothing) + smoothing / static_cast<double>(x_.shape()[-1]);
    const Variable each = weights_.defined() ? p * log_p * weights_ : p * log_p;
    return total(sum(each, -1), {});
  }

  /// Whether one op computes the log probabilities of the labels. Downstream of feeds plans fuse several.
  bool picks_at_once() const {
    const bool lazy = x_.node()->lazy || y_.node()->lazy || build_context().lazy;
    return scores_ == Scores::logits && options_.label_smoothing == 0 && !lazy &&
           wide_.shape().elements() > 0;
  }

  Variable of_classes() {
    if (y_.rank() == x_.rank() && y_.shape()[-1] == 1) y_ = squeeze(y_, -1);
    if (y_.rank() + 1 != x_.rank() || !std::equal(y_.shape().begin(), y_.shape().end(), x_.shape().begin()))
      throw_shapes();
    y_ = checked_labels(y_, x_, loss_);
    const auto picked = [&](bool loss) {
      return apply(log_softmax_pick(loss_, loss), {&wide_, &y_}, std::source_location::current());
    };
    const bool at_once = picks_at_once(),
               all_count = !options_.ignored_label && !weights_.defined() && !options_.weights.defined();
    if (at_once && all_count && y_.shape() == Shape{1} && options_.reduction != LossReduction::none)
      return picked(true);
    Variable counted;  // by how much each label counts; undefined: 1
    if (options_.ignored_label) {
      const Variable kept = not_equal(y_, *options_.ignored_label);
      y_ = where(kept, y_, 0);
      counted = cast(kept, wide_.dtype());
    }
    const Variable log_p = at_once ? Variable() : log_probabilities(wide_);
    Variable each = at_once ? picked(false) : pick_for(loss_, log_p, y_), smooth;
    if (options_.label_smoothing > 0) smooth = mean(weights_.defined() ? log_p * weights_ : log_p, -1);
    if (smooth.defined() && counted.defined()) smooth = smooth * counted;
    if (weights_.defined()) {
      const Variable of_label = gather(weights_, y_);
      counted = counted.defined() ? counted * of_label : of_label;
    }
    if (counted.defined()) each = each * counted;
    if (smooth.defined()) each = each * (1 - options_.label_smoothing) + smooth * options_.label_smoothing;
    return total(each, counted);
  }

  /// Of log probabilities of rows.
  Variable total(const Variable& each, const Variable& counted) const {
    const Variable weighed = detail::weighted(loss_, each, options_.weights, LossReduction::none);
    return negative(reduced(weighed, counted, options_.reduction));
  }

  std::string_view loss_;
  Scores scores_;
  const Variable& x_;
  Variable y_, wide_, weights_;  // x in float32 at least
  const CrossEntropyOptions& options_;
};

Variable cross_entropy_of(std::string_view loss, Scores scores, const Operand& x, const Operand& labels,
                          const CrossEntropyOptions& options) {
  const CallScope scope(x.where(), loss);
  const Variable &rows = x.defined(loss), &y = labels.defined(loss);
  return located(x.where(), [&] { return CrossEntropy(loss, scores, rows, y, options).result(); });
}

}  // namespace

Variable mean_squared_error(const Operand& prediction, const Operand& target) {
  const CallScope scope(prediction.where());
  const Variable &p = prediction.defined("mean_squared_error"), &t = target.defined("mean_squared_error");
  return located(prediction.where(), [&] {
    if (!(p.shape() == t.shape()))
      throw ShapeError(
          fmt::format("mean_squared_error: a prediction of shape {} and a target of shape {} differ{}",
                      p.shape().str(), t.shape().str(), open_note(p.shape(), t.shape())));
    if (p.dtype() != t.dtype() || !is_real(p.dtype()))
      throw TypeError(
          fmt::format("mean_squared_error: a prediction of {} and a target of {} must be of one real type; "
                      "cast() one of them",
                      name(p.dtype()), name(t.dtype())));
    const Variable target_of_batch = checked_target(t, p, "mean_squared_error");
    return rounded(mean(square(widened(p) - widened(target_of_batch))), p.dtype());
  });
}

Variable softmax_cross_entropy(const Operand& logits, const Operand& labels,
                               const CrossEntropyOptions& options) {
  return cross_entropy_of("softmax_cross_entropy", Scores::logits, logits, labels, options);
}

Variable nll_loss(const Operand& log_probabilities, const Operand& labels,
                  const CrossEntropyOptions& options) {
  return cross_entropy_of("nll_loss", Scores::log_probabilities, log_probabilities, labels, options);
}

Variable categorical_cross_entropy(const Operand& probabilities, const Operand& labels,
                                   const CrossEntropyOptions& options) {
  return cross_entropy_of("categorical_cross_entropy", Scores::probabilities, probabilities, labels, options);
}

}  // namespace espalier
