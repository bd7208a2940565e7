// The passes. Each is one function in one file, which rewrites the graph and returns true if it changed it.
#pragma once
#include "espalier/executor/graph/graph.h"
#include "espalier/executor/plan/compile_options.h"

namespace espalier {

class OpRegistry;

/// Removes identities: x · 1, x + 0, a cast to the same type, views that keep the layout. Splits products
/// with a vector that is added to each row.
bool simplify(Graph& graph, const CompileOptions& options = {});
/// Evaluates nodes that depend only on constants and shapes, if the result is not larger than the inputs.
bool fold_constants(Graph& graph, const CompileOptions& options = {});
/// Merges equal nodes with equal inputs.
bool common_subexpressions(Graph& graph, const CompileOptions& options = {});
/// Replaces the sum of adjacent slices, each padded with zeros, by one concatenation.
bool join_slices(Graph& graph, const CompileOptions& options = {});
/// Removes nodes that no result and no update depends on.
bool dead_nodes(Graph& graph, const CompileOptions& options = {});
/// Disconnects ops from values of which they read only the shape.
bool detach_shapes(Graph& graph, const CompileOptions& options = {});
/// On a GPU, in inference: batch normalization with running statistics, behind a convolution with fewer
/// elements in its kernels than in its result, scales the kernels in place of the result, of which a bias is
/// left. The kernels are scaled in each run.
bool fold_batch_norm(Graph& graph, const CompileOptions& options);
/// For a 16-bit precision, lowers matrix products, and the ops between them that allow it, to that type, and
/// inserts casts at the boundaries.
bool lower_precision(Graph& graph, const CompileOptions& options);
bool lower_precision(Graph& graph, Precision precision);
/// Computes convolutions, of float32 and bfloat16 on a CPU and of 16 bits on a GPU, and what stands between
/// them, with the channels as the last axis.
bool channels_last(Graph& graph, const CompileOptions& options = {});
/// Fuses softmax cross-entropy by labels into one kernel and its gradient into another; neither stores
/// probabilities.
bool fuse_cross_entropy(Graph& graph, const CompileOptions& options = {});
/// On a GPU, divides sums over axes on both sides of others into two, of which fused kernels take in the
/// first.
bool split_reductions(Graph& graph, const CompileOptions& options = {});
/// Fuses pointwise ops over one domain of elements, and folds of it, into one kernel. On a GPU a kernel
/// computes again what is cheaper than reading it (duplicates.h).
bool fuse_pointwise(Graph& graph, const CompileOptions& options = {});
/// On a CPU: a program whose operands are taken out of tables by rows, and whose results are put back there,
/// reads and writes these rows where they lie.
bool fuse_rows(Graph& graph, const CompileOptions& options = {});
/// Fuses plain gradient descent into matrix products: p - rate * a * b becomes one product. On a CPU.
bool fuse_sgd(Graph& graph, const CompileOptions& options = {});
/// Fuses the kernels that follow matrix products into them: bias and activation, and their gradients.
bool fuse_matmul(Graph& graph, const CompileOptions& options = {});
/// On a CPU: convolutions take in the program behind them, if oneDNN computes that in the same pass: biases,
/// residuals, activations and, in plans that write no leaf, batch normalization, for which kernels are
/// scaled.
bool fuse_convolution(Graph& graph, const CompileOptions& options = {});
/// An update of more elements is large: on a CPU it has nothing to gain from a group, in which its gradient
/// would be kept until all others are there.
constexpr int64_t large_update = 1 << 16;
/// Merges the updates of all parameters into one kernel; on a CPU, of those that are not large.
bool group_updates(Graph& graph, const CompileOptions& options = {});

/// On a CPU, moves large updates to where their operands are there and their leaves have no other readers:
/// gradients then need not wait for each other.
bool early_updates(Graph& graph, const CompileOptions& options = {});

/// Inserts the bucket of the gradients of these parameters, between backward and update, without gradients
/// that no update reads.
///
/// For replicas, `exchanged` has the results that are members, too (at least the loss). Then there is a
/// bucket for each dtype, and later nodes read the outputs of a WaitForGradients node. With `scattered`, only
/// the owners of parameters get the sums of their gradients, and gradients have buckets separate from
/// results.
bool gather_gradients(Graph& graph, const std::vector<Variable>& parameters, std::vector<ValueRef> gradients,
                      const std::vector<size_t>& exchanged = {}, bool scattered = false);
/// The same as the step says.
bool gather_gradients(StepGraph& step);
/// Splits the buckets of a plan with replicas into buckets of at least `bytes` (a message pays from 64 KiB
/// on), and moves each to the first position at which it is complete.
bool split_buckets(Graph& graph, const CompileOptions& options);
bool split_buckets(Graph& graph, int64_t bytes);

/// Removes all updates from micro-batches before the last one, which only accumulate gradients.
bool drop_updates(Graph& graph, const CompileOptions& options);
/// Removes the updates of leaves that other replicas own, and the nodes that then are dead.
bool own_updates(Graph& graph, const CompileOptions& options);
/// Where states have owners, appends the node in which owners send their new parameters to the other
/// replicas.
bool gather_parameters(Graph& graph, const CompileOptions& options);
/// Moves that node to the end: nodes before it read the parameters of the previous step.
bool gather_last(Graph& graph, const CompileOptions& options = {});

/// The number that all elements of a value are equal to, if that is known from the graph.
std::optional<double> fill_of(const Graph& graph, ValueRef v);

/// If a result or an assigned value is a leaf that the step assigns, or a view of one, copies it before the
/// first assignment. Required for correctness.
bool keep_old_values(Graph& graph, const CompileOptions& options = {});

/// Until the arena fits into the memory budget, scans keep the state in front of every √n-th step alone, and
/// their gradients run the steps between again.
bool checkpoint_scans(Graph& graph, const CompileOptions& options);

/// Recomputes values that are not read for a long time, until the arena fits into `budget` bytes or no
/// further value reduces it. Must be the last pass: others would merge the copies.
bool recompute(Graph& graph, const CompileOptions& options);
bool recompute(Graph& graph, int64_t budget, bool in_place = true);

// The ops that passes put into graphs, for the registry of ops.
void add_join_op(OpRegistry& ops);
void add_keep_op(OpRegistry& ops);
void add_shape_op(OpRegistry& ops);

}  // namespace espalier
