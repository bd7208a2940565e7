// Stacked: the inputs of several nodes of one op, for Op::batched.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

/// The inputs of nodes that have one op and inputs of the same shapes. An input is stacked, with the nodes as
/// a new first axis, or shared: all nodes have that one.
class Stacked {
 public:
  Stacked(OpPtr op, int64_t rows, SmallVector<Variable, 4> inputs, uint64_t shared)
      : op_(std::move(op)), rows_(rows), inputs_(std::move(inputs)), shared_(shared) {}

  const OpPtr& op() const { return op_; }
  /// The number of nodes.
  int64_t rows() const { return rows_; }
  size_t size() const { return inputs_.size(); }
  const Variable& operator[](size_t i) const { return inputs_[i]; }
  bool is_shared(size_t i) const { return (shared_ >> (i < 63 ? i : 63)) & 1; }
  bool any_shared() const { return shared_ != 0; }
  /// The rank of input i of one node.
  size_t rank(size_t i) const { return inputs_[i].rank() - (is_shared(i) ? 0 : 1); }
  /// The shape of input i of one node.
  Shape shape(size_t i) const;
  /// Input i stacked, also where it is shared: then it is repeated, as a view.
  Variable stacked(size_t i) const;
  /// That axis of one node, as an axis of what is stacked.
  static int64_t axis(int64_t axis) { return axis < 0 ? axis : axis + 1; }
  /// What the op infers for one node.
  Specs infer() const;
  /// The nodes as first axis, then this shape.
  Shape with_rows(const Shape& shape) const;

 private:
  OpPtr op_;
  int64_t rows_;
  SmallVector<Variable, 4> inputs_;
  uint64_t shared_;
};

/// An op that can compute several of its nodes at once. Pointwise ops need not be one.
class Batchable {
 public:
  /// The outputs of several nodes as those of a few nodes, made by calling ops: each has the nodes as a new
  /// first axis. None if these inputs do not allow it.
  virtual Gradients batched(const Stacked& in) const = 0;
  /// Inputs with as many rows, along the first axis, as the outputs, each row of which is made of that row of
  /// these and of all of the others: nodes with different numbers of rows can be computed as one, of the rows
  /// of all. None if it has no such inputs, or not with these specs.
  virtual InputSet row_inputs(const InputSpecs&) const { return InputSet::none(); }
  /// The axis of its output along which it puts its inputs side by side, if it does nothing else.
  virtual std::optional<int64_t> joins_along() const { return std::nullopt; }

 protected:
  ~Batchable() = default;
};

/// What the op makes of the nodes: none if they must be computed one by one.
Gradients batched(const Stacked& in);
/// Batchable::row_inputs, or of a pointwise op the inputs that are not broadcast along the first axis.
InputSet row_inputs(const Op& op, const InputSpecs& in);

}  // namespace espalier
