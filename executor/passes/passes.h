// The passes. Each is one function in one file: it rewrites the graph and says whether it changed anything.
#pragma once
#include "espalier/executor/graph/graph.h"
#include "espalier/executor/plan/compile_options.h"

namespace espalier {

class OpRegistry;

/// Removes what computes nothing: x · 1, x + 0, a cast to the same type, views that change nothing.
bool simplify(Graph& graph, const CompileOptions& options = {});
/// Computes what depends on constants and shapes alone, where that makes no tensor larger than what it is
/// made of.
bool fold_constants(Graph& graph, const CompileOptions& options = {});
/// Lets equal nodes with equal inputs be one node.
bool common_subexpressions(Graph& graph, const CompileOptions& options = {});
/// Puts slices side by side where they were to be added up with zeros around each.
bool join_slices(Graph& graph, const CompileOptions& options = {});
/// Removes what no result and no update needs.
bool dead_nodes(Graph& graph, const CompileOptions& options = {});
/// Lets ops that read no more than the shape of a value stop holding on to it.
bool detach_shapes(Graph& graph, const CompileOptions& options = {});
/// Lets matrix products, and what may be rounded between them, compute in the 16-bit type that is asked for;
/// casts stand where that begins and ends. Nothing to do for other precisions.
bool lower_precision(Graph& graph, const CompileOptions& options);
bool lower_precision(Graph& graph, Precision precision);
/// Softmax, the choice by labels and its gradient become two kernels, which keep no probabilities.
bool fuse_cross_entropy(Graph& graph, const CompileOptions& options = {});
/// Makes pointwise ops over one domain, and folds of it, one kernel.
bool fuse_pointwise(Graph& graph, const CompileOptions& options = {});
/// Lets products take in the gradient descent that follows them: p - rate * a * b is one product.
/// On a CPU.
bool fuse_sgd(Graph& graph, const CompileOptions& options = {});
/// Lets products take in the kernels that follow them: bias and activation, and their gradients.
bool fuse_matmul(Graph& graph, const CompileOptions& options = {});
/// Makes the updates of all parameters one kernel.
bool group_updates(Graph& graph, const CompileOptions& options = {});

/// Inserts the bucket in which the gradients of these parameters meet, between backward and update. What no
/// update reads is left out. It is done only where it is asked for.
///
/// For replicas `exchanged` names results that are members, too (the loss, at least); there is a bucket for
/// each dtype, and all that is behind reads what the arrival hands on. `scattered`: gradients are wanted by
/// the owners of their parameters alone, and have buckets of their own.
bool gather_gradients(Graph& graph, const std::vector<Variable>& parameters, std::vector<ValueRef> gradients,
                      const std::vector<size_t>& exchanged = {}, bool scattered = false);
/// Cuts the buckets of a plan with replicas into such of at least `bytes` (64 KiB and more are worth a
/// message), each complete, and sent, as early as the order of the graph lets it.
bool split_buckets(Graph& graph, const CompileOptions& options);
bool split_buckets(Graph& graph, int64_t bytes);

/// Removes all updates: a micro-batch that only accumulates gradients leaves them to the last one.
bool drop_updates(Graph& graph);
/// Removes the updates of leaves that another replica owns, and what is then not needed.
bool own_updates(Graph& graph, const StateOwners& owners, int replica);
/// Adds the end of such a step, in which owners send the others their new parameters.
bool gather_parameters(Graph& graph, const std::shared_ptr<const StateOwners>& owners);
/// Puts that end behind everything else: until there, parameters are as they were before the step.
bool gather_last(Graph& graph);

/// The number that fills a value everywhere, as far as the graph shows.
std::optional<double> fill_of(const Graph& graph, ValueRef v);

/// Copies what results and assignments show of a leaf that the step assigns, itself or through views, before
/// the first assignment. It is no optimization: it cannot be left out.
bool keep_old_values(Graph& graph);

/// Lets values that are not read for a long time be computed again when they are needed, until the arena fits
/// into `budget` bytes or nothing helps any more. It comes last: others would undo it.
bool recompute(Graph& graph, int64_t budget, bool in_place = true);

// The ops that passes put into graphs, for the registry of ops.
void add_join_op(OpRegistry& ops);
void add_keep_op(OpRegistry& ops);
void add_shape_op(OpRegistry& ops);

}  // namespace espalier
