// Rnn, Lstm, Gru: recurrent layers over whole sequences, by PyTorch's equations and names.
#pragma once
#include <concepts>
#include <optional>
#include <vector>

#include "espalier/nn/cells.h"
#include "espalier/ops/recurrent/packed_sequence.h"

namespace espalier::nn {

struct RecurrentOptions {
  int64_t layers = 1;          ///< each reads the outputs of the one before
  bool bidirectional = false;  ///< a second recurrence from the last step to the first, beside the first one
  bool bias = true;
  bool batch_first = false;  ///< dense inputs and outputs are [batch, steps, width]
  double dropout = 0;        ///< the rate at which the outputs of all layers but the last are dropped
  /// All steps of a sequence drop the same units: Gal and Ghahramani, A theoretically grounded application of
  /// dropout in recurrent neural networks, 2016.
  bool variational = false;
  /// In training mode each call adds normal numbers of this standard deviation to the weights: Graves,
  /// Practical variational inference for neural networks, 2011.
  double weight_noise = 0;
  /// Of all parameters. Without: uniform within ±1/√hidden.
  std::optional<Initializer> initializer = {};
  DType dtype = float32;  ///< of the parameters, if the input width is given: a real one
};
/// Those of RecurrentOptions, and the nonlinearity.
struct RnnOptions {
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  int64_t layers = 1;
  bool bidirectional = false, bias = true, batch_first = false;
  double dropout = 0;
  bool variational = false;
  double weight_noise = 0;
  std::optional<Initializer> initializer = {};
  DType dtype = float32;
};

/// Those of RecurrentOptions, and those of LSTMCellOptions.
struct LstmOptions {
  int64_t layers = 1;
  bool bidirectional = false, bias = true, batch_first = false;
  double dropout = 0;
  bool variational = false;
  double weight_noise = 0;
  int64_t projection = 0;
  bool peepholes = false, coupled = false, layer_norm = false;
  std::optional<Initializer> initializer = {};
  DType dtype = float32;
};

/// How many steps each sequence of a padded batch has, the first ones: [batch], int32 or int64.
struct Lengths {
  explicit Lengths(Variable lengths) : each(std::move(lengths)) {}
  explicit Lengths(const std::vector<int64_t>& lengths)
      : each(tensor_from(lengths, Shape{static_cast<int64_t>(lengths.size())})) {}
  Variable each;
};

/// What a recurrent layer gives: the states of its last layer at all steps, with both directions side by
/// side, and the states of all layers after their last steps.
template <class State>
struct SequenceOutput {
  Variable outputs;
  State state;
};
template <class State>
struct PackedOutput {
  data::PackedSequence outputs;
  State state;
};

// Inputs are [steps, batch, in] (see batch_first), at least one step, or packed sequences, whose rows are
// [in]. States are [layers · directions, batch, hidden], for each layer that of the forward recurrence and
// then that of the backward one; without a state it is 0. Of packed sequences they are in the order of the
// sequences as given. Outputs are [steps, batch, directions · hidden] or packed.
// With Lengths, which may come from a feed, each sequence of the batch ends after its own number of steps:
// outputs behind its end are 0, the last state is that after its last step, and the backward recurrence
// begins there. So results are those of packed sequences. A sequence of length 0 keeps its first state.
// Parameters of layer k: `weight_ih_lk` [gates · hidden, in or directions · hidden], `weight_hh_lk` [gates ·
// hidden, hidden], and with a bias `bias_ih_lk` and `bias_hh_lk` [gates · hidden], and the same with
// `_reverse` behind it. With an input width they are there at once, on the CPU, else after the first call.
// A call throws ShapeError for other shapes and for 0 steps, TypeError for other dtypes, and IndexError for a
// length outside [0, steps], also where a plan is run; a constructor Error unless sizes are positive,
// 0 <= dropout < 1 and weight_noise >= 0.
//
// As a Layer each is x ↦ outputs. All steps of a layer and direction are one op, unless an LSTM has options
// of LSTMCellOptions. Second derivatives are those of the cells step by step, so they take as many nodes, and
// cannot be had of an open number of steps.

/// The recurrence of RNNCell.
class Rnn : public LayerOf<Rnn> {
 public:
  explicit Rnn(int64_t hidden, RnnOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  Rnn(int64_t in, Hidden hidden, RnnOptions options = {}, Where where = Where::current())
      : Rnn(in, static_cast<int64_t>(hidden), options, &where) {}

  SequenceOutput<Variable> operator()(const Variable& x, Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Variable& state,
                                      Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Lengths& lengths,
                                      Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Variable& state, const Lengths& lengths,
                                      Where where = Where::current()) const;
  PackedOutput<Variable> operator()(const data::PackedSequence& x, Where where = Where::current()) const;
  PackedOutput<Variable> operator()(const data::PackedSequence& x, const Variable& state,
                                    Where where = Where::current()) const;

 private:
  Rnn(int64_t in, int64_t hidden, const RnnOptions& options, const Where* where);
};

/// The recurrence of GRUCell.
class Gru : public LayerOf<Gru> {
 public:
  explicit Gru(int64_t hidden, RecurrentOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  Gru(int64_t in, Hidden hidden, RecurrentOptions options = {}, Where where = Where::current())
      : Gru(in, static_cast<int64_t>(hidden), options, &where) {}

  SequenceOutput<Variable> operator()(const Variable& x, Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Variable& state,
                                      Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Lengths& lengths,
                                      Where where = Where::current()) const;
  SequenceOutput<Variable> operator()(const Variable& x, const Variable& state, const Lengths& lengths,
                                      Where where = Where::current()) const;
  PackedOutput<Variable> operator()(const data::PackedSequence& x, Where where = Where::current()) const;
  PackedOutput<Variable> operator()(const data::PackedSequence& x, const Variable& state,
                                    Where where = Where::current()) const;

 private:
  Gru(int64_t in, int64_t hidden, const RecurrentOptions& options, const Where* where);
};

/// The recurrence of LSTMCell. A state has both h and c, or neither. With a projection, h and outputs have
/// its width. The further parameters have LSTMCell's names, with `_lk` and `_reverse` behind them. With such
/// options and an open number of steps all steps are one `scan`.
class Lstm : public LayerOf<Lstm> {
 public:
  explicit Lstm(int64_t hidden, LstmOptions options = {}, Where where = Where::current());
  template <std::integral Hidden>
  Lstm(int64_t in, Hidden hidden, LstmOptions options = {}, Where where = Where::current())
      : Lstm(in, static_cast<int64_t>(hidden), options, &where) {}

  SequenceOutput<LSTMState> operator()(const Variable& x, Where where = Where::current()) const;
  SequenceOutput<LSTMState> operator()(const Variable& x, const LSTMState& state,
                                       Where where = Where::current()) const;
  SequenceOutput<LSTMState> operator()(const Variable& x, const Lengths& lengths,
                                       Where where = Where::current()) const;
  SequenceOutput<LSTMState> operator()(const Variable& x, const LSTMState& state, const Lengths& lengths,
                                       Where where = Where::current()) const;
  PackedOutput<LSTMState> operator()(const data::PackedSequence& x, Where where = Where::current()) const;
  PackedOutput<LSTMState> operator()(const data::PackedSequence& x, const LSTMState& state,
                                     Where where = Where::current()) const;

 private:
  Lstm(int64_t in, int64_t hidden, const LstmOptions& options, const Where* where);
};

}  // namespace espalier::nn
