#include "espalier/ops/recurrent/recurrence_call.h"

#include "espalier/core/error.h"

namespace espalier {

std::string_view name(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::tanh: return "tanh";
    case RecurrentCell::relu: return "relu";
    case RecurrentCell::lstm: return "lstm";
    case RecurrentCell::gru: return "gru";
  }
  return "";
}
int64_t gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

namespace {

RecurrentCell cell_of(const std::string& text) {
  for (const RecurrentCell cell :
       {RecurrentCell::tanh, RecurrentCell::relu, RecurrentCell::lstm, RecurrentCell::gru})
    if (name(cell) == text) return cell;
  throw Error("recurrence: there is no cell '" + text + "'");
}

/// Takes operands one after the other.
template <class T>
struct Taker {
  const SmallVector<const T*, 4>& from;
  size_t at = 0;
  const T* next() { return from[at++]; }
};

ForwardOperands<Tensor> operands_of(const Op& op, RecurrentCell cell, Taker<Tensor>& inputs) {
  ForwardOperands<Tensor> all{inputs.next(), inputs.next(), inputs.next()};
  if (cell == RecurrentCell::lstm) all.c = inputs.next();
  if (attribute<bool>(op, "bias")) {
    all.bias_ih = inputs.next();
    all.bias_hh = inputs.next();
  }
  if (has_lengths(op)) all.lengths = inputs.next();
  return all;
}

}  // namespace

bool has_lengths(const Op& op) { return op.name().starts_with("padded"); }

RecurrenceForm recurrence_form_of(const Op& op) {
  const auto sizes = attribute<std::vector<int64_t>>(op, "batch_sizes");
  return {cell_of(attribute<std::string>(op, "cell")), attribute<bool>(op, "reverse"),
          Dims(sizes.begin(), sizes.end())};
}

ForwardCall forward_call_of(const Op& op, const KernelCall& call) {
  const RecurrenceForm form = recurrence_form_of(op);
  Taker<Tensor> inputs{call.inputs};
  const ForwardOperands<Tensor> in = operands_of(op, form.cell, inputs);
  ForwardCall made{form, in, call.outputs[0], call.outputs[1]};
  size_t k = 2;
  if (form.cell == RecurrentCell::lstm) made.last_c = call.outputs[k++];
  if (k == call.outputs.size()) return made;
  made.gates = call.outputs[k++];
  made.memory = call.outputs[k++];
  return made;
}

BackwardCall backward_call_of(const Op& op, const KernelCall& call) {
  const RecurrenceForm form = recurrence_form_of(op);
  Taker<Tensor> inputs{call.inputs};
  const ForwardOperands<Tensor> in = operands_of(op, form.cell, inputs);
  BackwardCall made{.form = form, .in = in, .out = inputs.next()};
  if (keeps_gates(form.cell)) {
    made.gates = inputs.next();
    made.memory = inputs.next();
  }
  const int64_t given = attribute<int64_t>(op, "given");
  if (given & given_h) made.of_out = inputs.next();
  if (given & given_last_h) made.of_last_h = inputs.next();
  if (given & given_last_c) made.of_last_c = inputs.next();
  size_t k = 0;
  made.of_x = call.outputs[k++];
  made.of_h = call.outputs[k++];
  if (form.cell == RecurrentCell::lstm) made.of_c = call.outputs[k++];
  made.h_before = call.outputs[k++];
  if (form.cell == RecurrentCell::gru) made.of_sums = call.outputs[k++];
  return made;
}

}  // namespace espalier
