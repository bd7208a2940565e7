#include "espalier/nn/cells.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/lstm_step.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// The parameters of a cell, and their products.
class CellState : public LayerState {
 public:
  void create_for(int64_t in, DType dtype) { create_with("input width", in, dtype); }

 protected:
  CellState(std::string_view kind, int64_t gates, int64_t hidden, const CellOptions& options)
      : LayerState(kind), gates_(gates), hidden_(hidden), bias_(options.bias) {
    if (hidden <= 0)
      throw Error(fmt::format("{}: the state has width {}; it must be at least 1", kind, hidden));
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const Initializer initial = options.initializer ? *options.initializer : init::Uniform(-bound, bound);
    declare("weight_ih", {gates * hidden, -1}, initial);
    declare("weight_hh", {gates * hidden, hidden}, initial);
    if (!bias_) return;
    declare("bias_ih", {gates * hidden}, initial);
    declare("bias_hh", {gates * hidden}, initial);
  }
  CellState(std::string_view kind, const LstmForm& form, const std::optional<Initializer>& initializer)
      : LayerState(kind), gates_(form.gates()), hidden_(form.hidden), bias_(form.bias) {
    form.check(kind);
    for (const LstmParameter& each : lstm_parameters(form, -1, initializer))
      declare(each.name, each.shape, each.initializer);
  }

  void check_input(const Variable& x) {
    if (x.rank() != 2)
      throw ShapeError(fmt::format("{}: an input of shape {} is not [n, width]", kind(), x.shape().str()));
    fit(x, {{-1, x.shape()[1]}});
  }
  /// x · Wᵀ as one node.
  static Variable product(const Variable& x, const Variable& weight) {
    return apply(matmul_op({.transpose_a = false, .transpose_b = true}), {&x, &weight},
                 std::source_location::current());
  }
  /// W_ih·x + b_ih, [n, gates · hidden].
  Variable of_input(const Variable& x) {
    check_input(x);
    const Variable sums = product(x, parameter("weight_ih"));
    return bias_ ? sums + parameter("bias_ih") : sums;
  }
  /// W_hh·h + b_hh.
  Variable of_state(const Variable& h) const {
    const Variable sums = product(h, parameter("weight_hh"));
    return bias_ ? sums + parameter("bias_hh") : sums;
  }
  Variable gate(const Variable& gates, int64_t which) const {
    return gates_ == 1 ? gates : slice(gates, 1, which * hidden_, (which + 1) * hidden_);
  }
  /// The state [n, width], 0 if none is given. `sums` are as many rows, and at least as wide.
  Variable started(const Variable& state, int64_t width, const Variable& x, const Variable& sums) const {
    if (!state.defined()) return zeros_like(sums.shape()[1] == width ? sums : slice(sums, 1, 0, width));
    if (state.rank() != 2 || state.shape()[0] != x.shape()[0] || state.shape()[1] != width)
      throw ShapeError(
          fmt::format("{}: a state of shape {} does not fit an input of shape {}: it must be [n, {}]", kind(),
                      state.shape().str(), x.shape().str(), width));
    if (state.dtype() != x.dtype())
      throw TypeError(
          fmt::format("{}: the state is {} and the input {}", kind(), name(state.dtype()), name(x.dtype())));
    return state;
  }
  int64_t hidden() const { return hidden_; }

 private:
  int64_t gates_, hidden_;
  bool bias_;
};

class RNNCellState : public LayerStateOf<RNNCellState, CellState> {
 public:
  RNNCellState(int64_t hidden, const RNNCellOptions& o)
      : LayerStateOf("RNNCell", 1, hidden, CellOptions{o.bias, o.initializer, o.dtype}),
        nonlinearity_(o.nonlinearity) {}
  Variable forward(const Variable& x) override { return next(x, {}); }
  Variable next(const Variable& x, const Variable& state) {
    const Variable in = of_input(x), sum = in + of_state(started(state, hidden(), x, in));
    return nonlinearity_ == Nonlinearity::tanh ? tanh(sum) : relu(sum);
  }

 private:
  Nonlinearity nonlinearity_;
};

class LSTMCellState : public LayerStateOf<LSTMCellState, CellState> {
 public:
  LSTMCellState(int64_t hidden, const LSTMCellOptions& o)
      : LSTMCellState({hidden, o.bias, o.projection, o.peepholes, o.coupled, o.layer_norm}, o.initializer) {}
  Variable forward(const Variable& x) override { return next(x, {}).h; }
  LSTMState next(const Variable& x, const LSTMState& state) {
    check_input(x);
    const LstmWeights weights =
        lstm_weights(form_, [this](const std::string& name) { return parameter(name); });
    const bool apart = form_.plain() && form_.bias;  // the bias is a summand of the memory cell
    const Variable inputs = apart ? product(x, weights.weight_ih) : lstm_inputs(form_, weights, x);
    const LSTMState before{started(state.h, form_.width(), x, inputs),
                           started(state.c, form_.hidden, x, inputs)};
    return lstm_step(form_, weights, inputs, before, apart ? weights.bias_ih : Variable());
  }

 private:
  LSTMCellState(const LstmForm& form, const std::optional<Initializer>& initializer)
      : LayerStateOf("LSTMCell", form, initializer), form_(form) {}

  LstmForm form_;
};

class GRUCellState : public LayerStateOf<GRUCellState, CellState> {
 public:
  GRUCellState(int64_t hidden, const CellOptions& options) : LayerStateOf("GRUCell", 3, hidden, options) {}
  Variable forward(const Variable& x) override { return next(x, {}); }
  Variable next(const Variable& x, const Variable& state) {
    const Variable in = of_input(x), h = started(state, hidden(), x, in), of_h = of_state(h);
    const Variable r = sigmoid(gate(in, 0) + gate(of_h, 0)), z = sigmoid(gate(in, 1) + gate(of_h, 1));
    const Variable n = tanh(gate(in, 2) + r * gate(of_h, 2));
    return n + z * (h - n);
  }
};

template <class State, class Options>
std::shared_ptr<LayerState> new_cell(int64_t hidden, const Options& options, const Module::Where& where) {
  return located(where, [&] { return std::make_shared<State>(hidden, options); });
}

void create_cell(LayerState& cell, int64_t in, DType dtype, const Module::Where& where) {
  const CallScope scope(where, cell.kind());
  located(where, [&] { static_cast<CellState&>(cell).create_for(in, dtype); });
}

/// A call with a state, and the hooks.
template <class State>
Variable next_state(LayerState& cell, const Variable& x, const Variable& h, const Module::Where& where) {
  const CallScope scope(where, cell.kind());
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here
    if (!h.defined()) return cell.call(x);
    return cell.after_hooks(x, static_cast<State&>(cell).next(x, h));
  });
}

}  // namespace

RNNCell::RNNCell(int64_t hidden, RNNCellOptions options, Where where)
    : LayerOf(new_cell<RNNCellState>(hidden, options, where)) {}
RNNCell::RNNCell(int64_t in, int64_t hidden, const RNNCellOptions& options, const Where* where)
    : RNNCell(hidden, options, *where) {
  create_cell(layer_state(), in, options.dtype, *where);
}
Variable RNNCell::operator()(const Variable& x, const Variable& h, Where where) const {
  return next_state<RNNCellState>(layer_state(), x, h, where);
}

GRUCell::GRUCell(int64_t hidden, CellOptions options, Where where)
    : LayerOf(new_cell<GRUCellState>(hidden, options, where)) {}
GRUCell::GRUCell(int64_t in, int64_t hidden, const CellOptions& options, const Where* where)
    : GRUCell(hidden, options, *where) {
  create_cell(layer_state(), in, options.dtype, *where);
}
Variable GRUCell::operator()(const Variable& x, const Variable& h, Where where) const {
  return next_state<GRUCellState>(layer_state(), x, h, where);
}

LSTMCell::LSTMCell(int64_t hidden, LSTMCellOptions options, Where where)
    : LayerOf(new_cell<LSTMCellState>(hidden, options, where)) {}
LSTMCell::LSTMCell(int64_t in, int64_t hidden, const LSTMCellOptions& options, const Where* where)
    : LSTMCell(hidden, options, *where) {
  create_cell(layer_state(), in, options.dtype, *where);
}
LSTMState LSTMCell::operator()(const Variable& x, const LSTMState& state, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here
    if (state.h.defined() != state.c.defined())
      throw Error("LSTMCell: a state needs both h and c, or neither");
    auto& cell = static_cast<LSTMCellState&>(layer_state());
    LSTMState next = cell.next(x, state);
    return LSTMState{cell.after_hooks(x, next.h), next.c};
  });
}

}  // namespace espalier::nn
