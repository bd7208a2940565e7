// Reductions along axes, and the extreme, the first and the last of an axis.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

using Reduce = Variable (*)(const Variable& x, const Axes& axes, bool keep_dims);

struct Reduction {
  std::optional<Axes> axes;  ///< none: `x` stays as it is
  bool keep;
};

/// Axes are an attribute, or from some version on an input; without any, all are reduced, or none if
/// `noop_with_empty_axes`.
Reduction reduction_of(FileNode& node) {
  const bool keep = node.integer("keepdims", 1) != 0, nothing = node.integer("noop_with_empty_axes", 0) != 0;
  std::vector<int64_t> axes = node.has("axes") ? node.integers("axes")
                              : node.has(1)    ? node.integers(1)
                                               : std::vector<int64_t>{};
  for (int64_t& axis : axes) axis = axis_of(node, node[0], axis);
  if (!axes.empty()) return {Axes(axes), keep};
  if (nothing) return {std::nullopt, keep};
  return {Axes(axes_up_to(rank_of(node[0]))), keep};
}

template <Reduce reduce>
Outputs reduced(FileNode& node) {
  const Reduction how = reduction_of(node);
  if (!how.axes) return {node[0]};
  if (node[0].rank() == 0)
    return {
        computed([](const Variable& x) { return reshape(reduce(reshape(x, {1}), 0, false), {}); }, node[0])};
  return {computed([&](const Variable& x) { return reduce(x, *how.axes, how.keep); }, node[0])};
}

/// Reductions that change elements even if there is no axis to reduce.
template <Reduce reduce>
Outputs reduced_mapped(FileNode& node) {
  const Reduction how = reduction_of(node);
  const auto all = [&](const Variable& x) {
    if (!how.axes || x.rank() == 0) {
      return squeeze(reduce(unsqueeze(x, 0), 0, true), 0);
    }
    return reduce(x, *how.axes, how.keep);
  };
  if (is_real(node[0].dtype())) return {in_float32(node[0], all)};
  return {computed(all, node[0])};
}

Variable total(const Variable& x, const Axes& axes, bool keep) { return sum(x, axes, keep); }
Variable average(const Variable& x, const Axes& axes, bool keep) {
  if (is_real(x.dtype())) return mean(x, axes, keep);
  return cast(mean(cast(x, float64), axes, keep), x.dtype());
}
Variable product(const Variable& x, const Axes& axes, bool keep) { return prod(x, axes, keep); }

/// A bool is true or false; of no elements the extremes are those of the type.
template <bool largest>
Variable extreme(const Variable& x, const Axes& axes, bool keep) {
  if (x.dtype() == boolean) return largest ? any(x, axes, keep) : all(x, axes, keep);
  if (x.shape().elements() == 0) {
    const double none = is_real(x.dtype()) ? INFINITY : static_cast<double>(INT32_MAX);
    const Variable zero = sum(x, axes, keep);
    if (zero.shape().elements() == 0) return zero;
    return full_like(zero, largest ? -none : none);
  }
  return largest ? max(x, axes, keep) : min(x, axes, keep);
}
Variable absolute_sum(const Variable& x, const Axes& axes, bool keep) { return sum(abs(x), axes, keep); }
Variable square_sum(const Variable& x, const Axes& axes, bool keep) { return sum(square(x), axes, keep); }
Variable root_of_squares(const Variable& x, const Axes& axes, bool keep) {
  if (!is_real(x.dtype())) return cast(sqrt(cast(square_sum(x, axes, keep), float64)), x.dtype());
  return sqrt(square_sum(x, axes, keep));
}
Variable log_sum(const Variable& x, const Axes& axes, bool keep) {
  if (!is_real(x.dtype())) return cast(log(cast(sum(x, axes, keep), float64)), x.dtype());
  return log(sum(x, axes, keep));
}
Variable log_sum_of_exponentials(const Variable& x, const Axes& axes, bool keep) {
  if (!is_real(x.dtype())) return cast(logsumexp(cast(x, float64), axes, keep), x.dtype());
  return logsumexp(x, axes, keep);
}

/// The first position of the extreme, or the last one.
template <bool largest>
Outputs position(FileNode& node) {
  const bool keep = node.integer("keepdims", 1) != 0, last = node.integer("select_last_index", 0) != 0;
  const Variable x = computable(node[0]);
  const int64_t axis = axis_of(node, x, node.integer("axis", 0));
  const Variable seen = last ? flip(x, axis) : x;
  Variable found = largest ? argmax(seen, axis) : argmin(seen, axis);
  if (last) found = (x.shape()[axis] - 1) - found;
  return {keep ? unsqueeze(found, axis) : found};
}

}  // namespace

void add_reductions(Registry& all) {
  all.add("ReduceSum", 1, reduced<total>);
  all.add("ReduceMean", 1, reduced<average>);
  all.add("ReduceProd", 1, reduced<product>);
  all.add("ReduceMax", 1, reduced<extreme<true>>);
  all.add("ReduceMin", 1, reduced<extreme<false>>);
  all.add("ReduceL1", 1, reduced_mapped<absolute_sum>);
  all.add("ReduceL2", 1, reduced_mapped<root_of_squares>);
  all.add("ReduceSumSquare", 1, reduced_mapped<square_sum>);
  all.add("ReduceLogSum", 1, reduced_mapped<log_sum>);
  all.add("ReduceLogSumExp", 1, reduced_mapped<log_sum_of_exponentials>);
  all.add("ArgMax", 1, position<true>);
  all.add("ArgMin", 1, position<false>);
}

}  // namespace espalier::onnx
