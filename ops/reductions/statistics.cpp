// Reductions made of others.
#include "espalier/ops/functions/statistics.h"

#include <cmath>
#include <limits>

#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/compare.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/count_elements.h"
#include "espalier/ops/reductions/sum_mapped.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

constexpr double infinite_order = std::numeric_limits<double>::infinity();

/// Makes a reduction of `f`, a function of a Variable of reals; 16-bit ones are widened for it, so that they
/// are rounded once.
template <class F>
Variable reduce_reals(const Operand& x, const Axes& axes, std::string_view op, F&& f) {
  const Variable& v = x.defined(op);
  const CallScope scope(x.where(), op);
  return located(x.where(), [&] {
    check_dtype<Reals>({v.dtype(), v.shape()}, op);
    (void)axes.mask(v.rank(), op);
    if (!is_half(v.dtype())) return f(v);
    return cast(f(cast(v, DType::float32)), v.dtype());
  });
}

/// f(x) where x is not 0, and 0 elsewhere, also in derivatives: f is not applied to zeros.
template <class F>
Variable unless_zero(const Variable& x, F&& f) {
  const Variable zeros = zeros_like(x), is_zero = equal(x, zeros);
  return where(is_zero, zeros, f(where(is_zero, ones_like(x), x)));
}

/// Whether gradients of what is made of x are to be expected, which would compute values again that were left
/// out.
bool is_trained_with(const Variable& x) { return x.node()->needs_gradient && !build_context().no_grad; }

Variable square_root_unless_zero(const Variable& x) {
  if (!is_eager_on_cpu(x) || is_trained_with(x))
    return unless_zero(x, [](const Variable& y) { return sqrt(y); });
  Variable zeros, is_zero, root;
  {
    const ValuesLater later;
    zeros = zeros_like(x);
    is_zero = equal(x, zeros);
    root = sqrt(where(is_zero, ones_like(x), x));
  }
  const auto compute = [&](Tensor& out) {
    const Tensor in = x.value().contiguous_copy();
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>)
        detail::unary_row<scalar::Sqrt, T, T>(in.elements(), out.address(), in.address(), 1);
    });
  };
  return apply_by(compute, where_op(), {&is_zero, &zeros, &root}, std::source_location::current());
}

Variable squares_summed(const Variable& x, const Axes& axes, bool keep_dims) {
  return sum_mapped(
      Mapping::square, [](const Variable& v) { return square(v); }, x, axes, keep_dims);
}

Variable variance(const Variable& x, const Axes& axes, const VarianceOptions& options) {
  const Variable sum_of_squares = squares_summed(x - mean(x, axes, true), axes, options.keep_dims);
  const Variable freedom = count_ratio(x, sum_of_squares) - options.correction;
  return sum_of_squares / (options.correction > 0 ? maximum(freedom, 0) : freedom);
}

/// Whether axes that are reduced are empty, so that each of the results is made of nothing.
bool reduces_nothing(const Variable& x, const Axes& axes, std::string_view op) {
  const auto gone = axes.mask(x.rank(), op);
  bool empty = false;
  for (size_t i = 0; i < x.rank(); ++i) empty |= gone[i] && x.shape().dims()[i] == 0;
  return empty;
}

}  // namespace

Variable any(const Operand& x, const Axes& axes, bool keep_dims) {
  const CallScope scope(x.where());
  return not_equal(count_elements(x, axes, keep_dims, false), 0);
}
Variable all(const Operand& x, const Axes& axes, bool keep_dims) {
  const CallScope scope(x.where());
  return equal(count_elements(x, axes, keep_dims, true), 0);
}
Variable count_nonzero(const Operand& x, const Axes& axes, bool keep_dims) {
  return count_elements(x, axes, keep_dims, false);
}

Variable var(const Operand& x, const Axes& axes, const VarianceOptions& options) {
  return reduce_reals(x, axes, "var", [&](const Variable& v) { return variance(v, axes, options); });
}
Variable std(const Operand& x, const Axes& axes, const VarianceOptions& options) {
  return reduce_reals(x, axes, "std",
                      [&](const Variable& v) { return square_root_unless_zero(variance(v, axes, options)); });
}

Variable cov(const Operand& x, const CovOptions& options) {
  return reduce_reals(x, -1, "cov", [&](const Variable& given) {
    if (given.rank() > 2)
      throw ShapeError(
          fmt::format("cov: takes a matrix of rows of observations, not the shape {}", given.shape().str()));
    const Variable v = given.rank() == 1 ? unsqueeze(given, 0) : given;
    const auto weights_like = [&](Variable w) {
      if (!w.defined()) return w;
      if (w.rank() != 1 || w.shape()[0] != v.shape()[1])
        throw ShapeError(
            fmt::format("cov: weights of shape {} for {} observations", w.shape().str(), v.shape()[1]));
      if (!w.node()->lazy && w.device() != v.device()) w = w.to(v.device());
      return cast(w, v.dtype());
    };
    if (options.fweights.defined() && is_real(options.fweights.dtype()))
      throw TypeError(fmt::format("cov: fweights say how often observations count; they are integers, not {}",
                                  name(options.fweights.dtype())));
    const Variable often = weights_like(options.fweights), much = weights_like(options.aweights);
    const Variable weights = often.defined() && much.defined() ? often * much
                             : often.defined()                 ? often
                                                               : much;
    Variable total, mean_of_rows;
    if (weights.defined()) {
      total = sum(weights);
      mean_of_rows = sum(v * weights, -1, true) / total;
    } else {
      mean_of_rows = mean(v, -1, true);
      total = count_ratio(v, mean_of_rows);
    }
    Variable lost = full_like(total, options.correction);
    if (much.defined()) lost = lost * sum(weights * much) / total;
    const Variable apart = v - mean_of_rows;
    const Variable products =
        matmul(apart, transpose(weights.defined() ? apart * weights : apart)) / maximum(total - lost, 0);
    return given.rank() == 1 ? squeeze(products, {0, 1}) : products;
  });
}

Variable norm(const Operand& x, const Axes& axes, const NormOptions& options) {
  const double p = options.p;
  const bool keep = options.keep_dims;
  return reduce_reals(x, axes, "norm", [&](const Variable& v) {
    if (std::isnan(p)) throw Error("norm: p is NaN");
    if (p == 0) return sum(cast(not_equal(v, zeros_like(v)), v.dtype()), axes, keep);
    if (p == infinite_order) return max(abs(v), axes, keep);
    if (p == -infinite_order) return min(abs(v), axes, keep);
    if (p == 1)
      return sum_mapped(
          Mapping::magnitude, [](const Variable& y) { return abs(y); }, v, axes, keep);
    if (p == 2) return square_root_unless_zero(squares_summed(v, axes, keep));
    const auto raise = [](const Variable& y, double exponent) { return power(y, exponent); };
    const Variable size = abs(v);
    Variable powers;
    if (p > 0) {
      powers = p < 2 ? unless_zero(size, [&](const Variable& y) { return raise(y, p); }) : raise(size, p);
    } else {  // infinite where an element is 0, without a gradient there
      const Variable is_zero = equal(size, zeros_like(size));
      powers =
          where(is_zero, full_like(size, infinite_order), raise(where(is_zero, ones_like(size), size), p));
    }
    return unless_zero(sum(powers, axes, keep), [&](const Variable& y) { return raise(y, 1 / p); });
  });
}

Variable logsumexp(const Operand& x, const Axes& axes, bool keep_dims) {
  return reduce_reals(x, axes, "logsumexp", [&](const Variable& v) {
    if (reduces_nothing(v, axes, "logsumexp")) return log(sum(exp(v), axes, keep_dims));
    // An infinite maximum is not subtracted.
    const Variable largest = stop_gradient(max(v, axes, true));
    const Variable shift =
        where(equal(abs(largest), full_like(largest, infinite_order)), zeros_like(largest), largest);
    const Variable sum_of_all = sum(exp(v - shift), axes, true);
    const Variable result = log(sum_of_all) + shift;
    if (keep_dims) return result;
    return axes.list().empty() ? reshape(result, Shape()) : squeeze(result, axes);
  });
}

Variable nansum(const Operand& x, const Axes& axes, bool keep_dims) {
  return reduce_reals(x, axes, "nansum", [&](const Variable& v) {
    const auto numbers = [](const Variable& y) { return where(equal(y, y), y, zeros_like(y)); };
    if (is_trained_with(v)) return sum(numbers(v), axes, keep_dims);
    return sum_mapped(Mapping::number, numbers, v, axes, keep_dims);
  });
}
Variable nanmean(const Operand& x, const Axes& axes, bool keep_dims) {
  return reduce_reals(x, axes, "nanmean", [&](const Variable& v) {
    const Variable is_number = equal(v, v);
    return sum(where(is_number, v, zeros_like(v)), axes, keep_dims) /
           sum(cast(is_number, v.dtype()), axes, keep_dims);
  });
}

}  // namespace espalier
