// Comparisons, logic and the remainder as operators, and operations as methods.
#include "espalier/ops/functions/activation.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/compare.h"
#include "espalier/ops/functions/creation.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/math.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/functions/rounding.h"

namespace espalier {

Variable operator%(const Operand& a, const Operand& b) { return remainder(a, b); }
Variable operator<(const Operand& a, const Operand& b) { return less(a, b); }
Variable operator<=(const Operand& a, const Operand& b) { return less_equal(a, b); }
Variable operator>(const Operand& a, const Operand& b) { return greater(a, b); }
Variable operator>=(const Operand& a, const Operand& b) { return greater_equal(a, b); }
Variable operator&&(const Operand& a, const Operand& b) { return logical_and(a, b); }
Variable operator||(const Operand& a, const Operand& b) { return logical_or(a, b); }
Variable operator!(const Operand& a) { return logical_not(a); }

Variable Variable::sum(const Axes& axes, bool keep_dims, Where where) const {
  return espalier::sum({*this, where}, axes, keep_dims);
}
Variable Variable::mean(const Axes& axes, bool keep_dims, Where where) const {
  return espalier::mean({*this, where}, axes, keep_dims);
}
Variable Variable::max(const Axes& axes, bool keep_dims, Where where) const {
  return espalier::max({*this, where}, axes, keep_dims);
}
Variable Variable::min(const Axes& axes, bool keep_dims, Where where) const {
  return espalier::min({*this, where}, axes, keep_dims);
}
Variable Variable::argmax(int64_t axis, Where where) const { return espalier::argmax({*this, where}, axis); }
Variable Variable::reshape(const Shape& shape, Where where) const {
  return espalier::reshape({*this, where}, shape);
}
Variable Variable::flatten(int64_t first, Where where) const {
  return espalier::flatten({*this, where}, first);
}
Variable Variable::transpose(Where where) const { return espalier::transpose({*this, where}); }
Variable Variable::permute(const Axes& order, Where where) const {
  return espalier::permute({*this, where}, order);
}
Variable Variable::squeeze(const Axes& axes, Where where) const {
  return espalier::squeeze({*this, where}, axes);
}
Variable Variable::unsqueeze(int64_t axis, Where where) const {
  return espalier::unsqueeze({*this, where}, axis);
}
Variable Variable::cast(DType dtype, Where where) const { return espalier::cast({*this, where}, dtype); }
Variable Variable::detach(Where where) const { return stop_gradient({*this, where}); }
Variable Variable::abs(Where where) const { return espalier::abs({*this, where}); }
Variable Variable::exp(Where where) const { return espalier::exp({*this, where}); }
Variable Variable::log(Where where) const { return espalier::log({*this, where}); }
Variable Variable::sqrt(Where where) const { return espalier::sqrt({*this, where}); }
Variable Variable::square(Where where) const { return espalier::square({*this, where}); }
Variable Variable::relu(Where where) const { return espalier::relu({*this, where}); }
Variable Variable::sigmoid(Where where) const { return espalier::sigmoid({*this, where}); }
Variable Variable::tanh(Where where) const { return espalier::tanh({*this, where}); }

}  // namespace espalier
