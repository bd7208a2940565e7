#include "espalier/nn/builders.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/train_phase.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

const Variable& output_of(const Variable& h) { return h; }
const Variable& output_of(const LSTMState& state) { return state.h; }
bool is_whole(const Variable& h) { return h.defined(); }
/// Or none at all, which an LSTM begins with.
bool is_whole(const LSTMState& state) { return state.h.defined() == state.c.defined(); }

/// How errors name the builder of these cells.
template <class Cell>
constexpr std::string_view builder_of = std::is_same_v<Cell, RNNCell>    ? "RnnBuilder"
                                        : std::is_same_v<Cell, LSTMCell> ? "LstmBuilder"
                                                                         : "GruBuilder";

template <class CellOptions>
int64_t output_width(int64_t hidden, const CellOptions& options) {
  if constexpr (requires { options.projection; })
    if (options.projection) return options.projection;
  return hidden;
}

}  // namespace

template <class Cell, class CellOptions>
RecurrentBuilder<Cell, CellOptions>::RecurrentBuilder(std::optional<int64_t> in, int64_t hidden,
                                                      const Options& options, const Where* where)
    : dropout_(options.dropout), weight_noise_(options.weight_noise) {
  located(*where, [&] {
    if (options.layers <= 0)
      throw Error(fmt::format("{}: {} layers; there must be at least 1", builder_of<Cell>, options.layers));
    if (!(dropout_ >= 0 && dropout_ < 1))
      throw Error(
          fmt::format("{}: the rate of dropout must be in [0, 1), not {}", builder_of<Cell>, dropout_));
    if (!(weight_noise_ >= 0 && std::isfinite(weight_noise_)))
      throw Error(fmt::format("{}: the weight noise is {}, not a finite number of at least 0",
                              builder_of<Cell>, weight_noise_));
    if (weight_noise_ > 0 && !in)
      throw Error(fmt::format("{}: weight noise wants the input width: {}(in, hidden, …)", builder_of<Cell>,
                              builder_of<Cell>));
  });
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    Cell cell = in ? Cell(*in, hidden, options.cell, *where) : Cell(hidden, options.cell, *where);
    cells_.push_back(this->add(std::to_string(layer), std::move(cell)));
    if (in) in = output_width(hidden, options.cell);
  }
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::push(std::vector<State> states, StatePointer previous) {
  current_ = StatePointer(steps_.size());
  steps_.push_back({std::move(states), previous});
}

template <class Cell, class CellOptions>
LeafSubstitutes RecurrentBuilder<Cell, CellOptions>::noisy_weights() const {
  LeafSubstitutes noisy;
  if (weight_noise_ == 0 || !this->training()) return noisy;
  for (const Cell& cell : cells_)
    for (const auto& [name, weight] : cell.parameters())
      if (name.starts_with("weight_ih") || name.starts_with("weight_hh"))
        noisy.emplace(weight.node(), in_train_phase(weight + weight_noise_ * randn_like(weight),
                                                    [&w = weight] { return w; }));
  return noisy;
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::check_started(std::string_view call) const {
  if (steps_.empty())
    throw Error(fmt::format("{}: {} before start: there is no sequence yet", builder_of<Cell>, call));
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::check_layers(const std::vector<State>& states,
                                                       std::string_view call) const {
  if (states.size() != cells_.size())
    throw Error(fmt::format("{}: {} takes a state for each layer: {}, not {}", builder_of<Cell>, call,
                            cells_.size(), states.size()));
  for (size_t layer = 0; layer < states.size(); ++layer)
    if (!is_whole(states[layer]))
      throw Error(fmt::format("{}: {}: the state of layer {} is an undefined Variable", builder_of<Cell>,
                              call, layer));
}

template <class Cell, class CellOptions>
auto RecurrentBuilder<Cell, CellOptions>::step(StatePointer of, std::string_view call) const -> const Step& {
  check_started(call);
  const auto number = static_cast<int64_t>(of), count = static_cast<int64_t>(steps_.size());
  if (number < 0 || number >= count)
    throw IndexError(
        fmt::format("{}: {} at state {} of a sequence that has {}", builder_of<Cell>, call, number, count));
  return steps_[static_cast<size_t>(number)];
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::start(std::vector<State> first, Where where) {
  const CallScope scope(where);
  located(where, [&] {
    if (!first.empty()) check_layers(first, "start");
    noisy_ = noisy_weights();
    steps_.clear();
    push(std::move(first), {});
  });
}

template <class Cell, class CellOptions>
Variable RecurrentBuilder<Cell, CellOptions>::add_input(const Variable& x, Where where) {
  return add_input(current_, x, where);
}

template <class Cell, class CellOptions>
Variable RecurrentBuilder<Cell, CellOptions>::add_input(StatePointer previous, const Variable& x,
                                                        Where where) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    const std::vector<State> before = step(previous, "add_input").states;
    std::optional<SubstitutesScope> noisy;
    if (!noisy_.empty()) noisy.emplace(noisy_);
    std::vector<State> states;
    Variable y = x;
    for (size_t layer = 0; layer < cells_.size(); ++layer) {
      if (layer && dropout_ > 0 && this->training()) y = dropout(y, dropout_);
      const Cell& cell = cells_[layer];
      states.push_back(before.empty() ? cell(y) : cell(y, before[layer]));
      y = output_of(states.back());
    }
    push(std::move(states), previous);
    return y;
  });
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::set_state(std::vector<State> states, Where where) {
  located(where, [&] {
    check_started("set_state");
    check_layers(states, "set_state");
    push(std::move(states), current_);
  });
}

template <class Cell, class CellOptions>
void RecurrentBuilder<Cell, CellOptions>::rewind(Where where) {
  located(where, [&] {
    const Step& last = step(current_, "rewind");
    if (current_ == StatePointer())
      throw Error(fmt::format("{}: rewind at the first state", builder_of<Cell>));
    current_ = last.previous;
  });
}

template <class Cell, class CellOptions>
StatePointer RecurrentBuilder<Cell, CellOptions>::state(Where where) const {
  return located(where, [&] {
    check_started("state");
    return current_;
  });
}

template <class Cell, class CellOptions>
auto RecurrentBuilder<Cell, CellOptions>::states(Where where) const -> std::vector<State> {
  return states(current_, where);
}

template <class Cell, class CellOptions>
auto RecurrentBuilder<Cell, CellOptions>::states(StatePointer of, Where where) const -> std::vector<State> {
  return located(where, [&] { return step(of, "states").states; });
}

template <class Cell, class CellOptions>
Variable RecurrentBuilder<Cell, CellOptions>::back(Where where) const {
  return located(where, [&] {
    const std::vector<State>& now = step(current_, "back").states;
    if (now.empty())
      throw Error(fmt::format("{}: back before the first input of a sequence without first states",
                              builder_of<Cell>));
    return output_of(now.back());
  });
}

template <class Cell, class CellOptions>
auto RecurrentBuilder<Cell, CellOptions>::with_parts(const ClonedParts& parts) const -> RecurrentBuilder {
  RecurrentBuilder copy(*this);
  parts.reset(copy);
  for (Cell& cell : copy.cells_) cell = parts.of(cell);
  copy.steps_.clear();
  copy.noisy_.clear();
  copy.current_ = {};
  return copy;
}

template class RecurrentBuilder<RNNCell, RNNCellOptions>;
template class RecurrentBuilder<LSTMCell, LSTMCellOptions>;
template class RecurrentBuilder<GRUCell, CellOptions>;

}  // namespace espalier::nn
