#include "espalier/nn/recurrent_state.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/sequence_checks.h"

namespace espalier::nn {

namespace {

std::string suffix(int64_t layer, bool reverse) {
  return fmt::format("_l{}{}", layer, reverse ? "_reverse" : "");
}

/// State `which` of [layers · directions, batch, hidden].
Variable one_state(const Variable& states, int64_t which) {
  return squeeze(slice(states, 0, which, which + 1), {0});
}

Variable in_order(const Variable& states, const std::vector<int64_t>& order) {
  if (!states.defined()) return states;
  const Tensor list = tensor_from(order, Shape{static_cast<int64_t>(order.size())});
  return gather(states, list.to(states.device()), 1);
}

}  // namespace

RecurrentState::RecurrentState(std::string_view kind, RecurrentCell cell, const LstmForm& form,
                               const RecurrentOptions& options)
    : LayerStateOf(kind), cell_(cell), form_(form), options_(options) {
  form.check(kind);
  if (options.layers <= 0)
    throw Error(fmt::format("{}: {} layers; there must be at least 1", kind, options.layers));
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw Error(fmt::format("{}: the rate of dropout must be in [0, 1), not {}", kind, options.dropout));
  if (!(options.weight_noise >= 0 && std::isfinite(options.weight_noise)))
    throw Error(fmt::format("{}: the weight noise is {}, not a finite number of at least 0", kind,
                            options.weight_noise));
  const double bound = 1 / std::sqrt(static_cast<double>(form.hidden));
  const Initializer initial = options.initializer ? *options.initializer : init::Uniform(-bound, bound);
  const int64_t hidden = form.hidden, rows = gates_of(cell) * hidden;
  for (int64_t layer = 0; layer < options.layers; ++layer)
    for (int64_t d = 0; d < directions(); ++d) {
      const std::string of = suffix(layer, d == 1);
      const int64_t in = layer ? directions() * form.width() : -1;
      if (cell == RecurrentCell::lstm) {
        for (const LstmParameter& each : lstm_parameters(form, in, options.initializer))
          declare(each.name + of, each.shape, each.initializer);
        continue;
      }
      declare("weight_ih" + of, {rows, in}, initial);
      declare("weight_hh" + of, {rows, hidden}, initial);
      if (!options.bias) continue;
      declare("bias_ih" + of, {rows}, initial);
      declare("bias_hh" + of, {rows}, initial);
    }
}

Variable RecurrentState::weight(const std::string& name) const {
  const Variable value = parameter(name);
  if (!training() || options_.weight_noise == 0) return value;
  return in_train_phase(value + options_.weight_noise * randn_like(value), [&] { return value; });
}

LSTMState RecurrentState::zeros_for(const Variable& sums, const Dims& batch_sizes) const {
  const Variable first = batch_sizes.empty() ? one_state(sums, 0) : slice(sums, 0, 0, batch_sizes[0]);
  const Variable c = zeros_like(slice(first, 1, 0, form_.hidden));
  if (cell_ != RecurrentCell::lstm) return {c, {}};
  return {form_.projection ? zeros_like(slice(first, 1, 0, form_.projection)) : c, c};
}

RecurrenceOutputs RecurrentState::one_direction(const Variable& x, int64_t layer, bool reverse,
                                                const LSTMState& state, const Steps& steps) {
  const std::string of = suffix(layer, reverse);
  const int64_t which = layer * directions() + reverse;
  LSTMState first;
  if (state.h.defined()) first.h = one_state(state.h, which);
  if (state.c.defined()) first.c = one_state(state.c, which);
  const RecurrenceForm form{cell_, reverse, steps.batch_sizes};
  if (!form_.plain()) return with_options(x, of, first, form, steps.lengths);
  RecurrenceInputs in{matmul(x, transpose(weight("weight_ih" + of))), weight("weight_hh" + of), {}};
  if (options_.bias) {
    in.bias_ih = parameter("bias_ih" + of);
    in.bias_hh = parameter("bias_hh" + of);
  }
  if (!first.h.defined()) first = zeros_for(in.x, steps.batch_sizes);
  in.h = first.h;
  in.c = first.c;
  in.lengths = steps.lengths;
  return recurrence(in, form);
}

RecurrenceOutputs RecurrentState::with_options(const Variable& x, const std::string& of, LSTMState first,
                                               const RecurrenceForm& form, const Variable& lengths) const {
  const LstmWeights weights = lstm_weights(form_, [&](const std::string& name) {
    return name.starts_with("weight") ? weight(name + of) : parameter(name + of);
  });
  const Variable sums = lstm_inputs(form_, weights, x);
  if (!first.h.defined()) first = zeros_for(sums, form.batch_sizes);
  return lstm_over_steps(form_, weights, sums, first, form, lengths);
}

Variable RecurrentState::dropped(const Variable& x, const Dims& batch_sizes) const {
  if (!training() || options_.dropout == 0) return x;
  if (!options_.variational) return dropout(x, options_.dropout);
  if (batch_sizes.empty()) return x * dropout(ones_like(slice(x, 0, 0, 1)), options_.dropout);
  std::vector<int64_t> sequence;
  for (const int64_t size : batch_sizes)
    for (int64_t b = 0; b < size; ++b) sequence.push_back(b);
  const Tensor list = tensor_from(sequence, Shape{static_cast<int64_t>(sequence.size())});
  const Variable mask = dropout(ones_like(slice(x, 0, 0, batch_sizes[0])), options_.dropout);
  return x * gather(mask, list.to(x.device()), 0);
}

SequenceOutput<LSTMState> RecurrentState::over_steps(Variable x, const LSTMState& state, const Steps& steps) {
  std::vector<Variable> h, c;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    std::vector<Variable> outputs;
    for (int64_t d = 0; d < directions(); ++d) {
      RecurrenceOutputs made = one_direction(x, layer, d == 1, state, steps);
      outputs.push_back(std::move(made.h));
      h.push_back(std::move(made.last_h));
      if (made.last_c.defined()) c.push_back(std::move(made.last_c));
    }
    x = outputs.size() == 1 ? outputs[0] : concat(outputs, -1);
    if (layer + 1 < options_.layers) x = dropped(x, steps.batch_sizes);
  }
  return {x, {stack(h, 0), c.empty() ? Variable() : stack(c, 0)}};
}

void RecurrentState::check_state(const LSTMState& state, const Variable& x, int64_t batch) const {
  if (cell_ == RecurrentCell::lstm && state.h.defined() != state.c.defined())
    throw Error(fmt::format("{}: a state needs both h and c, or neither", kind()));
  for (const auto& [each, width] : {std::pair{&state.h, form_.width()}, {&state.c, form_.hidden}}) {
    if (!each->defined()) continue;
    const Shape wanted{options_.layers * directions(), batch, width};
    if (!(each->shape() == wanted))
      throw ShapeError(fmt::format("{}: a state of shape {} does not fit an input of shape {}: it must be {}",
                                   kind(), each->shape().str(), x.shape().str(), wanted.str()));
    if (each->dtype() != x.dtype())
      throw TypeError(
          fmt::format("{}: the state is {} and the input {}", kind(), name(each->dtype()), name(x.dtype())));
  }
}

SequenceOutput<LSTMState> RecurrentState::run(const Variable& given, const LSTMState& state,
                                              const Variable& lengths) {
  const Shape& shape = given.shape();
  const std::string_view layout = options_.batch_first ? "[batch, steps, width]" : "[steps, batch, width]";
  if (shape.rank() != 3 || shape[options_.batch_first ? 1 : 0] == 0)
    throw ShapeError(fmt::format("{}: an input of shape {} is not {}, with at least one step", kind(),
                                 shape.str(), layout));
  fit(given, {{-1, shape[2]}});
  const int64_t batch = shape[options_.batch_first ? 0 : 1];
  check_state(state, given, batch);
  if (lengths.defined() && !(lengths.shape() == Shape{batch}))
    throw ShapeError(fmt::format("{}: lengths of shape {} for an input of shape {}, which is {}", kind(),
                                 lengths.shape().str(), shape.str(), layout));
  const Variable x = checked_steps(options_.batch_first ? transpose(given, {1, 0, 2}) : given, kind());
  SequenceOutput<LSTMState> made =
      over_steps(x, state, {.lengths = lengths.defined() ? checked_lengths(lengths, x, kind()) : Variable()});
  if (options_.batch_first) made.outputs = transpose(made.outputs, {1, 0, 2});
  return made;
}

PackedOutput<LSTMState> RecurrentState::run(const data::PackedSequence& x, const LSTMState& state) {
  const Shape& shape = x.data.shape();
  if (shape.rank() != 2)
    throw ShapeError(fmt::format("{}: packed rows of shape {} are not [rows, width]", kind(), shape.str()));
  x.check(kind());
  fit(x.data, {{-1, shape[1]}});
  check_state(state, x.data, static_cast<int64_t>(x.sequences()));
  const LSTMState sorted{in_order(state.h, x.sorted_indices), in_order(state.c, x.sorted_indices)};
  const SequenceOutput<LSTMState> made =
      over_steps(x.data, sorted, {.batch_sizes = Dims(x.batch_sizes.begin(), x.batch_sizes.end())});
  return {x.with(made.outputs),
          {in_order(made.state.h, x.unsorted_indices), in_order(made.state.c, x.unsorted_indices)}};
}

}  // namespace espalier::nn
