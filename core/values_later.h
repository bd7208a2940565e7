// Eager nodes that one kernel computes together with what they are made of.
#pragma once
#include <initializer_list>

#include "espalier/core/function_ref.h"
#include "espalier/core/node.h"
#include "espalier/core/scoped_value.h"

namespace espalier {

/// While it lives, nodes that this thread makes have no values until these are asked for, as if they had been
/// released.
class ValuesLater {
 public:
  ValuesLater();

 private:
  ScopedValue<bool> scope_;
};

/// Whether `x` is an eager value on the CPU, for which `apply_by` may compute.
bool is_eager_on_cpu(const Variable& x);

/// Whether one kernel may compute what is made of these floats or doubles, of which intermediate nodes then
/// have no values: all are eager on the CPU, and a gradient will not compute these again from a leaf that was
/// assigned meanwhile.
bool may_be_one_pass(std::initializer_list<const Variable*> operands);

/// Applies an op of one output to eager Variables, which may lack values: `kernel` writes what the op's own
/// kernel would.
Variable apply_by(FunctionRef<void(Tensor& out)> kernel, OpPtr op,
                  std::initializer_list<const Variable*> inputs, const std::source_location& where);

}  // namespace espalier
