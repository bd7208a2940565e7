// Reductions beyond sum, mean, max and min.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Products along the given axes, or of all elements; 1 where there is none. The gradient is right with
/// zeros. Numbers only; integers wrap around.
Variable prod(const Operand& x, const Axes& axes = {}, bool keep_dims = false);

// Whether any or all elements are not zero, as bool, for elements of any type; a NaN is not zero. Of no
// elements any() is false and all() is true.
Variable any(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable all(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
/// The number (int64) of elements that are not zero.
Variable count_nonzero(const Operand& x, const Axes& axes = {}, bool keep_dims = false);

struct VarianceOptions {
  double correction = 1;  ///< the sum of squares is divided by n − correction: 1 for samples, 0 for all
  bool keep_dims = false;
};
// Reals only. NaN where n is not above the correction.
/// Σ (x − mean)² / max(0, n − correction)
Variable var(const Operand& x, const Axes& axes = {}, const VarianceOptions& options = {});
/// Its square root. The gradient is 0 where it is 0.
Variable std(const Operand& x, const Axes& axes = {}, const VarianceOptions& options = {});

struct CovOptions {
  double correction = 1;   ///< as in VarianceOptions
  Variable fweights = {};  ///< how often each observation counts, integers [n]
  Variable aweights = {};  ///< how much it counts, [n]
};
/// The covariances of variables, which are the rows of `x` [variables, n] with an observation in each column:
/// [variables, variables]. Of a vector its variance. NaN where there are not enough observations. PyTorch's
/// cov. Reals only. ShapeError.
Variable cov(const Operand& x, const CovOptions& options = {});

struct NormOptions {
  double p = 2;  ///< 0 counts what is not zero; infinity and −infinity are the extremes of |x|
  bool keep_dims = false;
};
/// (Σ |x|^p)^(1/p), for reals. Its gradient is 0 where the norm is 0, and for p < 1 where an element is 0.
/// Throws ShapeError for an infinite p along an empty axis, Error if p is NaN.
Variable norm(const Operand& x, const Axes& axes = {}, const NormOptions& options = {});

/// log Σ exp(x), for reals; large elements do not overflow. −∞ of no elements.
Variable logsumexp(const Operand& x, const Axes& axes = {}, bool keep_dims = false);

// sum() and mean() of the elements that are not NaN, for reals. The mean of none is NaN.
Variable nansum(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable nanmean(const Operand& x, const Axes& axes = {}, bool keep_dims = false);

/// The position (int64) of the first smallest element along an axis; a NaN counts as smallest.
Variable argmin(const Operand& x, int64_t axis = -1);

}  // namespace espalier
