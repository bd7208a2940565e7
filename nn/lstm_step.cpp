#include "espalier/nn/lstm_step.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/memory_cell.h"
#include "espalier/ops/recurrent/sequence_checks.h"
#include "espalier/ops/recurrent/step_loop.h"

namespace espalier::nn {

namespace {

/// x · Wᵀ as one node.
Variable times(const Variable& x, const Variable& weight) {
  return apply(matmul_op({.transpose_a = false, .transpose_b = true}), {&x, &weight},
               std::source_location::current());
}
Variable part(const Variable& x, int64_t which, int64_t width) {
  return slice(x, -1, which * width, (which + 1) * width);
}
Variable normalized(const Variable& x, const Variable& gain, const Variable& bias) {
  return bias.defined() ? layer_norm(x, gain, bias) : layer_norm(x, gain, 0.0);
}

/// Whether what is made of x now has a value at once. Then one scan is the fastest loop.
bool is_computed_at_once(const Variable& x) {
  return !x.node()->lazy && !x.node()->waits && !build_context().lazy && !deferring();
}

}  // namespace

void LstmForm::check(std::string_view layer) const {
  if (hidden <= 0)
    throw Error(fmt::format("{}: the state has width {}; it must be at least 1", layer, hidden));
  if (projection != 0 && (projection < 0 || projection >= hidden))
    throw Error(fmt::format("{}: .projection is {}; it must be less than the {} hidden units, or 0 for none",
                            layer, projection, hidden));
}

std::vector<LstmParameter> lstm_parameters(const LstmForm& form, int64_t in,
                                           const std::optional<Initializer>& initializer) {
  const double bound = 1 / std::sqrt(static_cast<double>(form.hidden));
  const Initializer initial = initializer ? *initializer : init::Uniform(-bound, bound);
  const int64_t hidden = form.hidden, rows = form.gates() * hidden;
  std::vector<LstmParameter> all{{"weight_ih", {rows, in}, initial},
                                 {"weight_hh", {rows, form.width()}, initial}};
  if (form.bias) {
    all.push_back({"bias_ih", {rows}, initial});
    all.push_back({"bias_hh", {rows}, initial});
  }
  if (form.projection) all.push_back({"weight_hr", {form.projection, hidden}, initial});
  if (form.peepholes) all.push_back({"weight_peephole", {(form.gates() - 1) * hidden}, initial});
  if (!form.layer_norm) return all;
  all.push_back({"norm_ih", {rows}, init::Ones()});
  all.push_back({"norm_hh", {rows}, init::Ones()});
  all.push_back({"norm_c", {hidden}, init::Ones()});
  if (form.bias) all.push_back({"bias_c", {hidden}, init::Zeros()});
  return all;
}

LstmWeights lstm_weights(const LstmForm& form, const std::function<Variable(const std::string&)>& parameter) {
  LstmWeights all{parameter("weight_ih"), parameter("weight_hh")};
  if (form.bias) all.bias_ih = parameter("bias_ih"), all.bias_hh = parameter("bias_hh");
  if (form.projection) all.weight_hr = parameter("weight_hr");
  if (form.peepholes) all.weight_peephole = parameter("weight_peephole");
  if (!form.layer_norm) return all;
  all.norm_ih = parameter("norm_ih"), all.norm_hh = parameter("norm_hh"), all.norm_c = parameter("norm_c");
  if (form.bias) all.bias_c = parameter("bias_c");
  return all;
}

Variable lstm_inputs(const LstmForm& form, const LstmWeights& w, const Variable& x) {
  const Variable sums = times(x, w.weight_ih);
  if (form.layer_norm) return normalized(sums, w.norm_ih, w.bias_ih);
  return form.bias ? sums + w.bias_ih : sums;
}

LSTMState lstm_step(const LstmForm& form, const LstmWeights& w, const Variable& inputs,
                    const LSTMState& before, const Variable& bias) {
  const int64_t width = form.hidden;
  const Variable product = times(before.h, w.weight_hh);
  LSTMState next;
  if (!form.peepholes && !form.coupled && !form.layer_norm) {
    SmallVector<Variable, 4> summands;
    MemoryCellForm cell{width, 1, {}};
    for (const Variable* each : {&inputs, &bias, &product, &w.bias_hh}) {
      if (!each->defined()) continue;
      summands.push_back(*each);
      constexpr int64_t i = 0, f = 1, g = 2, o = 3;
      for (const int64_t block : {i, o, f, g}) cell.blocks.push_back(block);
    }
    const Variable memories[] = {before.c};
    const MemoryStates made = next_memory(cell, {summands.data(), summands.size()}, memories);
    next = {made.h, made.c};
  } else {
    Variable states = product;
    if (form.layer_norm)
      states = normalized(states, w.norm_hh, w.bias_hh);
    else if (form.bias)
      states = states + w.bias_hh;
    const Variable sums = inputs + states, fresh = tanh(part(sums, form.gates() - 2, width));
    /// σ of a gate's sum, which has a peephole into the memory c.
    const auto gate = [&](int64_t which, int64_t peephole, const Variable& c) {
      const Variable sum = part(sums, which, width);
      return sigmoid(form.peepholes ? sum + part(w.weight_peephole, peephole, width) * c : sum);
    };
    const Variable i = gate(0, 0, before.c);
    next.c = form.coupled ? before.c + i * (fresh - before.c) : gate(1, 1, before.c) * before.c + i * fresh;
    const Variable o = gate(form.gates() - 1, form.gates() - 2, next.c);
    next.h = o * tanh(form.layer_norm ? normalized(next.c, w.norm_c, w.bias_c) : next.c);
  }
  if (form.projection) next.h = times(next.h, w.weight_hr);
  return next;
}

RecurrenceOutputs lstm_over_steps(const LstmForm& form, const LstmWeights& weights, const Variable& inputs,
                                  const LSTMState& first, const RecurrenceForm& form_of_loop,
                                  const Variable& lengths) {
  /// The state after a step, and its output; sequences that have ended keep theirs.
  const auto step = [&](const Variable& x, const LSTMState& before, const Variable& counts) {
    LSTMState next = lstm_step(form, weights, x, before);
    if (!counts.defined()) return std::pair{next, next.h};
    const Variable shown = where(counts, next.h, 0.0);
    return std::pair{LSTMState{where(counts, next.h, before.h), where(counts, next.c, before.c)}, shown};
  };
  if (form_of_loop.batch_sizes.empty() && (has_open_steps(inputs) || is_computed_at_once(inputs))) {
    std::vector<Variable> sequences{inputs};
    if (lengths.defined()) {
      const Variable position = unsqueeze(positions_like(inputs, 0), 1);
      sequences.push_back(unsqueeze(less(position, unsqueeze(lengths, 0)), 2));
    }
    const ScanResult made = scan(
        [&](const std::vector<Variable>& state, const std::vector<Variable>& x) -> ScanResult {
          const auto [next, shown] = step(x[0], {state[0], state[1]}, x.size() > 1 ? x[1] : Variable());
          return {{next.h, next.c}, {shown}};
        },
        {first.h, first.c}, sequences, {.reverse = form_of_loop.reverse});
    return {made.outputs[0], made.state[0], made.state[1]};
  }
  const StepLoop loop(inputs, form_of_loop, "an LSTM");
  std::vector<Variable> outputs;
  LSTMState state = first;
  for (int64_t k = 0; k < loop.steps(); ++k) {
    const LSTMState own{loop.first_rows(state.h, k), loop.first_rows(state.c, k)};
    const Variable counts = lengths.defined() ? unsqueeze(greater(lengths, loop.position(k)), 1) : Variable();
    const auto [next, shown] = step(loop.of_step(inputs, k), own, counts);
    outputs.push_back(shown);
    state = {loop.with_rows(next.h, state.h, k), loop.with_rows(next.c, state.c, k)};
  }
  return {loop.joined(std::move(outputs)), state.h, state.c};
}

}  // namespace espalier::nn
