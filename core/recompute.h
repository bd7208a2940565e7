// recompute: values that a gradient computes again instead of keeping them.
#pragma once
#include <source_location>
#include <type_traits>

#include "espalier/core/function_ref.h"
#include "espalier/core/variable.h"

namespace espalier {

class Op;
class OpRegistry;

/// f(x), whose inner values are not kept for the gradient: backward computes them again from x, block by
/// block if a network is a chain of such calls. `f` may use other Variables beside x; it is called once, and
/// what it wrote is written again for the gradient, with the random numbers of the first time, which are
/// kept, and without its assignments of states. So gradients are those of f(x). Chen et al., Training deep
/// nets with sublinear memory cost, 2016.
///
/// Under NoGrad, and where nothing of f(x) is trained, it is f(x). Throws Error if x or the result is
/// undefined.
Variable recompute(FunctionRef<Variable(const Variable&)> f, const Variable& x,
                   std::source_location where = std::source_location::current());
/// The same for a layer, whose operations get that line.
template <class F>
requires std::is_invocable_r_v<Variable, const F&, const Variable&, const std::source_location&> Variable
recompute(const F& layer, const Variable& x, std::source_location where = std::source_location::current()) {
  const auto call = [&](const Variable& v) -> Variable { return layer(v, where); };
  return recompute(FunctionRef<Variable(const Variable&)>(call), x, where);
}

/// Whether an op is that of such a result: it shows its first input, and the others are for gradients.
bool is_recomputed(const Op& op);
void add_recompute_ops(OpRegistry& ops);

}  // namespace espalier
