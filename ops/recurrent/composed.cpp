#include "espalier/ops/recurrent/composed.h"

#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/memory_cell.h"
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
    State next = next_state(form.cell, x, s, own);
    Variable shown = next.h, started = own.h;
    if (in.lengths.defined()) {
      const Variable counts = unsqueeze(greater(in.lengths, loop.position(k)), 1);
      shown = where(counts, next.h, 0.0);
      started = where(counts, own.h, 0.0);
      next.h = where(counts, next.h, own.h);
      if (next.c.defined()) next.c = where(counts, next.c, own.c);
    }
    before.push_back(started);
    out.push_back(shown);
    state.h = loop.with_rows(next.h, state.h, k);
    if (next.c.defined()) state.c = loop.with_rows(next.c, state.c, k);
  }
  made.out = {loop.joined(std::move(out)), state.h, state.c};
  made.h_before = loop.joined(std::move(before));
  return made;
}

MemoryStates composed_memory_cell(const MemoryCellForm& form, std::span<const Variable> summands,
                                  std::span<const Variable> memories) {
  // Of summands with the same blocks: the bias behind a product is added to it.
  SmallVector<Variable, 4> sums;
  SmallVector<int64_t, 4> of_sums;
  for (int64_t p = 0; p < form.summands(); ++p) {
    const Variable& each = summands[static_cast<size_t>(p)];
    if (each.rank() == 1 && !sums.empty() && form.same_blocks(of_sums.back(), p) &&
        each.shape()[0] == sums.back().shape()[-1]) {
      sums.back() = sums.back() + each;
    } else {
      sums.push_back(each);
      of_sums.push_back(p);
    }
  }
  const auto gate = [&](int64_t which) {
    Variable sum;
    for (size_t k = 0; k < sums.size(); ++k) {
      const int64_t block = form.block(of_sums[k], which);
      if (block < 0) continue;
      const Variable part = slice(sums[k], -1, block * form.width, (block + 1) * form.width);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  };
  Variable c = sigmoid(gate(0)) * tanh(gate(form.gates() - 1));
  for (int64_t k = 0; k < form.memories; ++k) c = c + sigmoid(gate(2 + k)) * memories[static_cast<size_t>(k)];
  return {sigmoid(gate(1)) * tanh(c), c};
}

MemoryStates next_memory(const MemoryCellForm& form, std::span<const Variable> summands,
                         std::span<const Variable> memories) {
  bool lazy = build_context().lazy;
  for (const std::span<const Variable> list : {summands, memories})
    for (const Variable& each : list) lazy |= each.node()->lazy;
  const bool fits =
      form.memories <= MemoryCellForm::most_memories && form.summands() <= MemoryCellForm::most_summands;
  return (fits && !lazy ? memory_cell : composed_memory_cell)(form, summands, memories);
}

bool is_below(const Variable& root, const Variable& x) {
  TreeWalk walk(root.node());
  while (Node* node = walk.next()) {
    if (node == x.node()) return true;
    if (node->id > x.node()->id) walk.enter_inputs(*node);
  }
  return false;
}

}  // namespace espalier
