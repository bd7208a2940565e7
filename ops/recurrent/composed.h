// A recurrence written with the cells' equations, step by step: what higher derivatives are made of.
#pragma once
#include "espalier/ops/recurrent/recurrence.h"

namespace espalier {

struct ComposedRecurrence {
  RecurrenceOutputs out;
  Variable h_before;  ///< the states that the steps begin with, in the shape of out.h
  Variable of_sums;   ///< zeros, added to the products of the states: their gradients are those of the sums
};

/// Throws UnsupportedError if the number of steps is that of an open axis.
ComposedRecurrence composed_recurrence(const RecurrenceInputs& in, const RecurrenceForm& form);

/// Whether `root` is made of `x`.
bool is_below(const Variable& root, const Variable& x);

}  // namespace espalier
