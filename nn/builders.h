// RecurrentBuilder: stacked cells that are fed step by step, from the last state or from any before it.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "espalier/core/leaf_substitutes.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/cloned_parts.h"

namespace espalier::nn {

template <class CellOptions>
struct BuilderOptions {
  int64_t layers = 1;     ///< each reads the outputs of the one before
  double dropout = 0;     ///< the rate at which the outputs of all layers but the last are dropped
  CellOptions cell = {};  ///< of every layer
  /// In training mode each sequence adds normal numbers of this standard deviation to the weights: Graves,
  /// Practical variational inference for neural networks, 2011. It wants an input width.
  double weight_noise = 0;
};

/// A state of a builder's sequence, the first one or that after a step, valid until the next `start`.
enum class StatePointer : int64_t {};

/// A stack of cells with a current state. `add_input` makes one step from it, or from another state of the
/// sequence, as beam search, stacks and trees need:
///
///     esp::nn::LstmBuilder rnn(3, 8, {.layers = 2});
///     rnn.start();
///     for (const esp::Variable& x : inputs) rnn.add_input(x);  // x [n, 3]
///     const esp::Variable h = rnn.back();                      // [n, 8]
///
/// Neubig et al., DyNet: the dynamic neural network toolkit, 2017; Dyer et al., Transition-based dependency
/// parsing with stack long short-term memory, 2015. The cells are its parts: "0.weight_ih" and so on; with an
/// input width their parameters are there at once, on the CPU, else after the first step. A copy has the same
/// cells and a sequence of its own, which goes on from where that of the original is. All states are kept
/// until the next `start`. A constructor throws Error unless the sizes are positive, 0 <= dropout < 1 and
/// weight_noise >= 0, and for noise without an input width.
template <class Cell, class CellOptions>
class RecurrentBuilder : public ModuleOf<RecurrentBuilder<Cell, CellOptions>> {
 public:
  using Where = Module::Where;
  using Options = BuilderOptions<CellOptions>;
  /// Of one layer: an LSTMState, or h.
  using State = std::invoke_result_t<const Cell&, const Variable&>;

  explicit RecurrentBuilder(int64_t hidden, Options options = {}, Where where = Where::current())
      : RecurrentBuilder(std::nullopt, hidden, options, &where) {}
  template <std::integral Hidden>
  RecurrentBuilder(int64_t in, Hidden hidden, Options options = {}, Where where = Where::current())
      : RecurrentBuilder(in, static_cast<int64_t>(hidden), options, &where) {}

  /// Begins a sequence, and forgets the one before. The first states are given for each layer, or are 0.
  /// Throws Error if there is not one for each layer.
  void start(std::vector<State> first = {}, Where where = Where::current());
  /// The output of the last layer, h, after a step from the current state, or from `previous`. The state
  /// after it becomes the current one. Throws Error before `start`, IndexError for a `previous` that is not
  /// of this sequence, and ShapeError and TypeError as a cell.
  Variable add_input(const Variable& x, Where where = Where::current());
  Variable add_input(StatePointer previous, const Variable& x, Where where = Where::current());
  /// Makes these the current state, one for each layer, as if a step had led to them. Throws Error before
  /// `start`, and if there is not one for each layer.
  void set_state(std::vector<State> states, Where where = Where::current());
  /// Goes back to the state which the step to the current one began at. Throws Error at the first state and
  /// before `start`.
  void rewind(Where where = Where::current());

  /// The current state, the first one right after `start`. Throws Error before it.
  StatePointer state(Where where = Where::current()) const;
  /// The states of all layers there, or at `of`. First ones that are not given are none. Throws Error before
  /// `start`, and IndexError as `add_input`.
  std::vector<State> states(Where where = Where::current()) const;
  std::vector<State> states(StatePointer of, Where where = Where::current()) const;
  /// h of the last layer in the current state. Throws Error before `start` and for first states that are not
  /// given.
  Variable back(Where where = Where::current()) const;

  const std::vector<Cell>& cells() const { return cells_; }

  /// For ClonedParts: a clone has no sequence.
  RecurrentBuilder with_parts(const ClonedParts& parts) const;

 private:
  struct Step {
    std::vector<State> states;
    StatePointer previous;
  };

  RecurrentBuilder(std::optional<int64_t> in, int64_t hidden, const Options& options, const Where* where);
  void push(std::vector<State> states, StatePointer previous);
  LeafSubstitutes noisy_weights() const;
  void check_started(std::string_view call) const;
  void check_layers(const std::vector<State>& states, std::string_view call) const;
  const Step& step(StatePointer of, std::string_view call) const;

  double dropout_, weight_noise_;
  std::vector<Cell> cells_;
  LeafSubstitutes noisy_;  ///< weights of this sequence
  std::vector<Step> steps_;
  StatePointer current_ = {};
};

using RnnBuilder = RecurrentBuilder<RNNCell, RNNCellOptions>;
using LstmBuilder = RecurrentBuilder<LSTMCell, LSTMCellOptions>;
using GruBuilder = RecurrentBuilder<GRUCell, CellOptions>;

extern template class RecurrentBuilder<RNNCell, RNNCellOptions>;
extern template class RecurrentBuilder<LSTMCell, LSTMCellOptions>;
extern template class RecurrentBuilder<GRUCell, CellOptions>;

}  // namespace espalier::nn
