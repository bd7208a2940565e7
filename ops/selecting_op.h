// Ops along the last axis that select elements: their outputs are values and the positions (int64) that these
// have in their rows.
#pragma once
#include "espalier/ops/row_op.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

/// A subclass adds name(), run_cpu() and, if the last axis gets another size, row_size().
class SelectingOp : public RowOp {
 public:
  SelectingOp() : RowOp({.gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  Specs infer(const InputSpecs& in) const override {
    check_has_axis(*in[0], name());
    const Shape shape = with_last_size(in[0]->shape, row_size(in[0]->shape));
    Specs specs;
    specs.push_back({in[0]->dtype, shape});
    specs.push_back({DType::int64, shape});
    return specs;
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    if (!g.defined()) return {Variable()};
    return {add_along_axis_like(g, rule.output(1), rule.input(), -1, name())};
  }

 protected:
  /// How many elements it selects from each row.
  virtual int64_t row_size(const Shape& x) const { return x[-1]; }
};

/// Both outputs of such an op along an axis.
template <class Result>
Result select_along(OpPtr op, const Operand& x, int64_t axis) {
  const Variable& v = x.defined(op->name());
  const CallScope scope(x.where(), "");
  const int64_t a = axis_of(v, axis, op->name(), x.where());
  const Variable last = exchange_last_axis(v, a);
  const Variable values = apply(std::move(op), {&last}, x.where());
  return {exchange_last_axis(values, a), exchange_last_axis(Variable(values.node(), 1), a)};
}

}  // namespace espalier
