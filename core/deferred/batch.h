// What has computed several nodes at once, and the rows of it.
#pragma once
#include <span>
#include <vector>

#include "espalier/core/node.h"

namespace espalier {

/// What output k of a node is of the outputs of what has computed it.
enum class BatchForm : uint8_t {
  whole,  ///< outputs[k] itself
  row,    ///< row `place` of outputs[k], without the first axis
  rows,   ///< of outputs[k], as many rows as the node has, from row `place` on
};

/// Nodes of an eager tree that stand for nodes which waited.
struct Batch {
  SmallVector<Edge, 1> outputs;
  BatchForm form;
};

/// Where an operand that does not wait is read: in the batch that has computed it, or in the node itself,
/// where that alone has kept the value.
struct ReadPlace {
  Edge edge;
  int32_t row = -1;  ///< of the batch, or negative: the whole
};
ReadPlace read_place(const Edge& operand);

/// A Variable of the eager tree that has the value of this output of a node that a Deferred has computed.
Variable computed_form(const Node& node, uint32_t output);
/// The part that is that node's of `all`, which has the shape of this output of the batch.
Variable part_of_batch(const Batch& batch, const Node& node, uint32_t output, const Variable& all);
/// The gradient of that output of the batch, if this is the gradient of the node's.
Variable put_into_batch(const Node& node, uint32_t output, const Variable& gradient);

/// A row to be stacked: one of a source, or, if `row` is negative, the whole source.
struct RowPiece {
  uint32_t source;
  int32_t row;
  friend bool operator==(const RowPiece&, const RowPiece&) = default;
};

// Operations on rows along the first axis, defined in ops/joining/stack_rows.cpp.
/// The op that stacks these rows, which have one shape, along a new first axis. Its inputs are the sources.
OpPtr stack_rows_op(std::vector<RowPiece> pieces);
/// Applies `op`, a stack_rows_op. On devices other than the CPU the same is composed of other ops.
Variable stack_rows(const OpPtr& op, std::span<const Variable* const> sources);
/// Every `step`-th row from `begin` on. A view.
Variable row_range(const Variable& x, int64_t begin, int64_t step, int64_t count);
/// Row `row`, without the first axis. A view.
Variable row_of(const Variable& x, int64_t row);
/// Zeros in the shape of `like`, with `x` as row `row`: the transpose of row_of.
Variable put_row_like(const Variable& x, const Variable& like, int64_t row);
/// The same with the rows of `x`, from row `begin` on.
Variable put_rows_like(const Variable& x, const Variable& like, int64_t begin);
/// Whether gradients are rows put into zeros, which `joined_put_rows` adds up as one, or to `sum`, in its
/// buffer if possible.
bool puts_rows_like(const Variable& gradient);
Variable joined_put_rows(std::span<const Variable> gradients, Variable sum = {});

}  // namespace espalier
