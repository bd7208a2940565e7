// Every public operation, one line each. Operands are Variables, Tensors or numbers; a number takes the dtype
// of the other operand. Two operands are broadcast as in NumPy and must have one dtype (cast() changes it).
// Negative axes count from the end. All throw ShapeError or TypeError with the op, the shapes or dtypes, and
// the line of the call.
#pragma once
#include <optional>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

// Elementwise arithmetic, also as a + b, a - b, a * b, a / b and -a. Division is for reals.
Variable add(const Operand& a, const Operand& b);
Variable subtract(const Operand& a, const Operand& b);
Variable multiply(const Operand& a, const Operand& b);
Variable divide(const Operand& a, const Operand& b);
Variable power(const Operand& base, const Operand& exponent);
Variable maximum(const Operand& a, const Operand& b);
Variable minimum(const Operand& a, const Operand& b);
Variable negative(const Operand& x);
Variable abs(const Operand& x);
Variable sign(const Operand& x);
Variable square(const Operand& x);
Variable sqrt(const Operand& x);
Variable exp(const Operand& x);
Variable log(const Operand& x);
/// The error function.
Variable erf(const Operand& x);
Variable sin(const Operand& x);
Variable cos(const Operand& x);
Variable floor(const Operand& x);

// Elementwise activations, for reals.
Variable tanh(const Operand& x);
Variable sigmoid(const Operand& x);
Variable relu(const Operand& x);
/// x·Φ(x), with the standard normal distribution Φ. Hendrycks and Gimpel, Gaussian error linear units, 2016.
Variable gelu(const Operand& x);

// Comparisons return bool; `where` selects from `a` where the condition holds and from `b` elsewhere.
Variable equal(const Operand& a, const Operand& b);
Variable not_equal(const Operand& a, const Operand& b);
Variable less(const Operand& a, const Operand& b);
Variable less_equal(const Operand& a, const Operand& b);
Variable greater(const Operand& a, const Operand& b);
Variable greater_equal(const Operand& a, const Operand& b);
Variable logical_and(const Operand& a, const Operand& b);
Variable logical_or(const Operand& a, const Operand& b);
Variable logical_not(const Operand& x);
Variable where(const Operand& condition, const Operand& a, const Operand& b);

/// Converts elements to `dtype`. Reals are truncated to integers, clamped to the range; NaN becomes 0.
Variable cast(const Operand& x, DType dtype);

// Other layouts of the same elements; the result is a view where strides allow it, else a copy.
/// One size may be -1: it is inferred.
Variable reshape(const Operand& x, const Shape& shape);
/// Merges axis `first` and all axes after it into one.
Variable flatten(const Operand& x, int64_t first = 0);
/// Swaps the last two axes.
Variable transpose(const Operand& x);
/// Axis i of the result is axis `order[i]` of `x`.
Variable transpose(const Operand& x, const Axes& order);
/// Removes the given axes, of size 1, or all axes of size 1.
Variable squeeze(const Operand& x, const Axes& axes = {});
/// Inserts an axis of size 1, at position `axis` of the result.
Variable unsqueeze(const Operand& x, int64_t axis);
/// Repeats axes of size 1, and prepends axes.
Variable broadcast_to(const Operand& x, const Shape& shape);
/// Elements `begin` to `end` (excluded) of one axis. Negative positions count from the end.
Variable slice(const Operand& x, int64_t axis, int64_t begin, int64_t end);
Variable concat(const std::vector<Variable>& variables, int64_t axis = 0,
                std::source_location where = std::source_location::current());
/// Joins variables of one shape along a new axis.
Variable stack(const std::vector<Variable>& variables, int64_t axis = 0,
               std::source_location where = std::source_location::current());

// Reductions along the given axes, or all. The gradient of max and min is divided among equal elements.
Variable sum(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable mean(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable max(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable min(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
/// The position (int64) of the first largest element along an axis.
Variable argmax(const Operand& x, int64_t axis = -1);

/// [..., m, k] × [..., k, n] = [..., m, n], with leading axes broadcast; transposed operands are not copied.
Variable matmul(const Operand& a, const Operand& b);

// Along one axis; large inputs do not overflow.
Variable softmax(const Operand& x, int64_t axis = -1);
Variable log_softmax(const Operand& x, int64_t axis = -1);

/// (x − mean) / √(variance + ε) along the last axis, times `gain` plus `bias`, which are broadcast. Ba et
/// al., Layer normalization, 2016.
Variable layer_norm(const Operand& x, const Operand& gain, const Operand& bias, double epsilon = 1e-5);

/// Slices of `x` along `axis` at `indices` (int32 or int64, of any shape). Throws IndexError.
Variable gather(const Operand& x, const Operand& indices, int64_t axis = 0);
/// x[…, indices[…]]: selects one element of each row along the last axis; `indices` has the shape of x
/// without that axis.
Variable pick(const Operand& x, const Operand& indices);
/// [..., classes] with 1 at the index and 0 elsewhere. Throws IndexError.
Variable one_hot(const Operand& indices, int64_t classes, DType dtype = float32);

// Losses, averaged over the batch.
/// Mean of (prediction − target)² over all elements; both have one shape.
Variable mean_squared_error(const Operand& prediction, const Operand& target);
/// What becomes of the losses of the elements.
enum class LossReduction : uint8_t { mean, sum, none };
struct CrossEntropyOptions {
  /// By how much the label of each class counts: [classes], real. The mean is divided by the sum of what the
  /// labels count; with probabilities, by the number of rows. Undefined: all count 1.
  Variable class_weights = {};
  /// Integer labels of this value count nothing; it need not be a class. If all do, the mean is NaN.
  std::optional<int64_t> ignored_label = {};
  /// From 0 to 1: the target is (1 − s) · label + s / classes. Szegedy et al., Rethinking the Inception
  /// architecture, 2015.
  double label_smoothing = 0;
  LossReduction reduction = LossReduction::mean;
};
/// −log softmax(logits)[label] along the last axis: logits [..., classes]; labels [...] or [..., 1] of
/// integers, or [..., classes] of probabilities. A scalar, or with LossReduction::none one loss for each
/// label. Throws ShapeError, TypeError, IndexError for a label that is no class, Error for other options.
Variable softmax_cross_entropy(const Operand& logits, const Operand& labels,
                               const CrossEntropyOptions& options = {});

// Random numbers. Downstream of a feed, or in a tree that has one, each evaluation of a step draws them anew,
// and so does each step of a plan: the same numbers eagerly, in plans, on replicas and from checkpoints. In a
// tree without a feed they are drawn where they are written. No gradient passes through them; it does through
// what is computed with them: mean + deviation * randn_like(mean) is differentiable in both.
/// Standard normal numbers in the shape and dtype of `x`, for reals; rows of a batch if `x` has such.
Variable randn_like(const Operand& x);
/// Uniform numbers in [0, 1), in the shape and dtype of `x`, for reals.
Variable rand_like(const Operand& x);
/// 1 with the probability that stands in that place of `p`, else 0, in the dtype of `p`, for reals: where
/// rand_like(p) would be below p. Throws Error where p is not in [0, 1], NaN included (on a GPU at the next
/// synchronization).
Variable bernoulli(const Operand& p);
/// Standard normal numbers, and uniform ones in [0, 1), in a shape that does not depend on the batch. Throw
/// TypeError unless the dtype is real.
Variable normal(const Shape& shape, DType dtype = float32, Device device = {},
                std::source_location where = std::source_location::current());
Variable uniform(const Shape& shape, DType dtype = float32, Device device = {},
                 std::source_location where = std::source_location::current());
/// Zeroes elements with probability `rate` and divides the others by 1 − rate. The identity in plans of
/// inference.
Variable dropout(const Operand& x, double rate);

/// `x`, through which no gradient passes: derivatives of all orders take it for a constant. A view, which
/// costs nothing in a plan.
Variable stop_gradient(const Operand& x);

// Constants in the shape of another Variable, whatever that shape is in a step.
Variable full_like(const Operand& x, double value);
Variable zeros_like(const Operand& x);
Variable ones_like(const Operand& x);

}  // namespace espalier
