// The operands of the two ops of a recurrence, by their roles, for the kernels of all backends.
#pragma once
#include "espalier/core/op.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "espalier/ops/recurrent/step_rows.h"

namespace espalier {

/// Which gradients of outputs `recurrence_gradient` is given, bit by bit.
inline constexpr int64_t given_h = 1, given_last_h = 2, given_last_c = 4;

/// Absent operands are null.
template <class T>
struct ForwardOperands {
  const T *x, *weight, *h, *c = nullptr, *bias_ih = nullptr, *bias_hh = nullptr, *lengths = nullptr;
};
struct ForwardCall {
  RecurrenceForm form;
  ForwardOperands<Tensor> in;
  Tensor *out, *last_h, *last_c = nullptr, *gates = nullptr, *memory = nullptr;
};
struct BackwardCall {
  RecurrenceForm form;
  ForwardOperands<Tensor> in;  ///< x and biases have shapes alone
  const Tensor *out, *gates = nullptr, *memory = nullptr;
  const Tensor *of_out = nullptr, *of_last_h = nullptr, *of_last_c = nullptr;
  Tensor *of_x = nullptr, *of_h = nullptr, *of_c = nullptr, *h_before = nullptr, *of_sums = nullptr;
};

/// Whether the op, or its gradient, has lengths of padded sequences as its operand behind the biases.
bool has_lengths(const Op& op);
RecurrenceForm recurrence_form_of(const Op& op);
ForwardCall forward_call_of(const Op& op, const KernelCall& call);
BackwardCall backward_call_of(const Op& op, const KernelCall& call);

/// The rows of the steps over `x`, and of the widest one `batch`.
inline StepRows step_rows_of(const RecurrenceForm& form, const Shape& x) {
  return form.batch_sizes.empty() ? StepRows(x[0], x[1], form.reverse)
                                  : StepRows(form.batch_sizes, form.reverse);
}
/// The cells that keep what they computed for their derivatives.
inline bool keeps_gates(RecurrentCell cell) {
  return cell == RecurrentCell::lstm || cell == RecurrentCell::gru;
}

}  // namespace espalier
