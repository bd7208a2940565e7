// Losses of differences, and of distributions with one number for each element.
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/arithmetic.h"
#include "espalier/ops/functions/losses.h"
#include "espalier/ops/functions/smooth_activation.h"
#include "espalier/ops/losses/loss_terms.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

using detail::bounded_log;
using detail::check_positive;
using detail::loss_of;
using detail::reduced;
using detail::weighted;

namespace {

/// m · (d − m / 2) / scale, where d is p − t and m is d within ±bound: d² / 2 / scale there, and a line
/// beyond, as one formula without a condition. Its second derivative is 1 / scale at d = 0, too.
Variable square_or_line(const Variable& p, const Variable& t, double bound, double scale) {
  const auto factors = [&] {
    const Variable d = p - t, m = clamp(d, -bound, bound), rest = d - m * 0.5;
    if (scale == 1) return std::pair(m, rest);
    return std::pair(m * rest, Variable(Operand(1 / scale).like(rest)));
  };
  if (!(p.shape() == t.shape()) || !may_be_one_pass({&p, &t})) {
    const auto [first, second] = factors();
    return first * second;
  }
  const auto [first, second] = [&] {
    const ValuesLater later;
    return factors();
  }();
  const auto compute = [&](Tensor& out) {
    const Tensor a = p.value().contiguous_copy(), b = t.value().contiguous_copy();
    visit(a.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (std::is_floating_point_v<T>) {
        const T *from = static_cast<const T*>(a.address()), *aim = static_cast<const T*>(b.address());
        T* const to = static_cast<T*>(out.address());
        const T most = static_cast<T>(bound), factor = static_cast<T>(1 / scale);
        parallel_for(out.elements(), detail::grain, [=](int64_t begin, int64_t end) {
          vectorized([=]() __attribute__((always_inline)) {
            for (int64_t i = begin; i < end; ++i) {
              const T d = from[i] - aim[i], high = d > most ? most : d, within = high < -most ? -most : high;
              to[i] = within * (d - within * T(0.5)) * factor;
            }
          });
        });
      }
    });
  };
  return apply_by(compute, multiply_op(), {&first, &second}, std::source_location::current());
}

/// log q, and 0 where q is 0 so that q log q is.
Variable log_unless_zero(const Variable& q) { return log(where(greater(q, 0.0), q, ones_like(q))); }

}  // namespace

Variable mean_squared_error(const Operand& prediction, const Operand& target, const LossOptions& options) {
  return loss_of("mean_squared_error", prediction, target, [&](const Variable& p, const Variable& t) {
    return weighted("mean_squared_error", square(p - t), options.weights, options.reduction);
  });
}

Variable mean_absolute_error(const Operand& prediction, const Operand& target, const LossOptions& options) {
  return loss_of("mean_absolute_error", prediction, target, [&](const Variable& p, const Variable& t) {
    return weighted("mean_absolute_error", abs(p - t), options.weights, options.reduction);
  });
}

Variable smooth_l1_loss(const Operand& prediction, const Operand& target, const SmoothL1Options& options) {
  return loss_of("smooth_l1_loss", prediction, target, [&](const Variable& p, const Variable& t) {
    check_positive("smooth_l1_loss", "beta", options.beta);
    return weighted("smooth_l1_loss", square_or_line(p, t, options.beta, options.beta), options.weights,
                    options.reduction);
  });
}

Variable huber_loss(const Operand& prediction, const Operand& target, const HuberOptions& options) {
  return loss_of("huber_loss", prediction, target, [&](const Variable& p, const Variable& t) {
    check_positive("huber_loss", "delta", options.delta);
    return weighted("huber_loss", square_or_line(p, t, options.delta, 1), options.weights, options.reduction);
  });
}

Variable binary_cross_entropy(const Operand& probabilities, const Operand& target,
                              const LossOptions& options) {
  return loss_of("binary_cross_entropy", probabilities, target, [&](const Variable& p, const Variable& t) {
    return weighted("binary_cross_entropy", -(t * bounded_log(p) + (1.0 - t) * bounded_log(1.0 - p)),
                    options.weights, options.reduction);
  });
}

Variable binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                          const SigmoidCrossEntropyOptions& options) {
  constexpr std::string_view name = "binary_cross_entropy_with_logits";
  return loss_of(name, logits, target, [&](const Variable& x, const Variable& t) {
    // −log(1 − p) is x − log p.
    const Variable negative_log = -log_sigmoid(x), rest = (1.0 - t) * x;
    if (!options.positive_weights.defined())
      return weighted(name, rest + negative_log, options.weights, options.reduction);
    const Variable y = t.rank() == x.rank() ? t : zeros_like(x) + t;
    const Variable counted = weighted(name, y, options.positive_weights, LossReduction::none) + (1.0 - y);
    return weighted(name, rest + counted * negative_log, options.weights, options.reduction);
  });
}

Variable kl_div(const Operand& log_probabilities, const Operand& target, const KlDivergenceOptions& options) {
  return loss_of("kl_div", log_probabilities, target, [&](const Variable& log_p, const Variable& q) {
    const Variable each =
        weighted("kl_div", options.log_target ? exp(q) * (q - log_p) : q * (log_unless_zero(q) - log_p),
                 options.weights, LossReduction::none);
    if (!options.batch_mean || options.reduction != LossReduction::mean)
      return reduced(each, {}, options.reduction);
    if (each.rank() == 0) throw ShapeError("kl_div: batch_mean needs a first axis to divide by");
    Dims rest(each.rank() - 1);
    std::iota(rest.begin(), rest.end(), 1);
    return rest.empty() ? mean(each) : mean(sum(each, Axes(rest)));
  });
}

Variable poisson_nll_loss(const Operand& prediction, const Operand& target, const PoissonOptions& options) {
  return loss_of("poisson_nll_loss", prediction, target, [&](const Variable& x, const Variable& t) {
    if (!(options.epsilon >= 0))
      throw Error(fmt::format("poisson_nll_loss: epsilon is {}; it must not be negative", options.epsilon));
    Variable each = options.log_input ? exp(x) - t * x : x - t * log(x + options.epsilon);
    if (options.full) {
      const Variable counted = where(greater(t, 1.0), t, ones_like(t));
      const Variable stirling =
          counted * log(counted) - counted + log(counted * (2 * std::numbers::pi)) * 0.5;
      each = each + where(greater(t, 1.0), stirling, zeros_like(t));
    }
    return weighted("poisson_nll_loss", each, options.weights, options.reduction);
  });
}

Variable gaussian_nll_loss(const Operand& mean, const Operand& target, const Operand& variance,
                           const GaussianOptions& options) {
  constexpr std::string_view name = "gaussian_nll_loss";
  return loss_of(name, mean, target, [&](const Variable& m, const Variable& t) {
    check_positive(name, "epsilon", options.epsilon);
    Variable v = variance.is_number() ? variance.like(m) : variance.defined(name);
    detail::check_real(name, v);
    v = maximum(rounded(v, m.dtype()), options.epsilon);
    Variable each = (weighted(name, square(m - t), 1.0 / v, LossReduction::none) + log(v)) * 0.5;
    if (options.full) each = each + std::log(2 * std::numbers::pi) / 2;
    return weighted(name, each, options.weights, options.reduction);
  });
}

}  // namespace espalier
