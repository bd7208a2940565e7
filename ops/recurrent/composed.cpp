#include "espalier/ops/recurrent/composed.h"

#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/step_loop.h"

namespace espalier {

namespace {

struct State {
  Variable h, c;
};

/// One step from the products of the inputs and of the states.
State next_state(RecurrentCell cell, const Variable& x, const Variable& s, const State& before) {
  const int64_t width = before.h.shape()[1];
  const auto gate = [&](const Variable& sums, int64_t which) {
    return slice(sums, 1, which * width, (which + 1) * width);
  };
  switch (cell) {
    case RecurrentCell::tanh: return {tanh(x + s), {}};
    case RecurrentCell::relu: return {relu(x + s), {}};
    case RecurrentCell::gru: {
      const Variable r = sigmoid(gate(x, 0) + gate(s, 0)), z = sigmoid(gate(x, 1) + gate(s, 1));
      const Variable n = tanh(gate(x, 2) + r * gate(s, 2));
      return {n + z * (before.h - n), {}};
    }
    case RecurrentCell::lstm: break;
  }
  const Variable sum = x + s, i = sigmoid(gate(sum, 0)), f = sigmoid(gate(sum, 1));
  const Variable c = f * before.c + i * tanh(gate(sum, 2));
  return {sigmoid(gate(sum, 3)) * tanh(c), c};
}

}  // namespace

ComposedRecurrence composed_recurrence(const RecurrenceInputs& in, const RecurrenceForm& form) {
  const StepLoop loop(in.x, form, "the gradient of a recurrence's gradient");
  ComposedRecurrence made;
  made.of_sums = zeros_like(in.x);
  const Variable weight = transpose(in.weight);
  std::vector<Variable> out, before;
  State state{in.h, in.c};
  for (int64_t k = 0; k < loop.steps(); ++k) {
    const State own{loop.first_rows(state.h, k),
                    state.c.defined() ? loop.first_rows(state.c, k) : Variable()};
    Variable x = loop.of_step(in.x, k), s = matmul(own.h, weight) + loop.of_step(made.of_sums, k);
    if (in.bias_ih.defined()) {
      x = x + in.bias_ih;
      s = s + in.bias_hh;
    }
    const State next = next_state(form.cell, x, s, own);
    before.push_back(own.h);
    out.push_back(next.h);
    state.h = loop.with_rows(next.h, state.h, k);
    if (next.c.defined()) state.c = loop.with_rows(next.c, state.c, k);
  }
  made.out = {loop.joined(std::move(out)), state.h, state.c};
  made.h_before = loop.joined(std::move(before));
  return made;
}

}  // namespace espalier
