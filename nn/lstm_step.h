// One step of an LSTM with any of its options: what LSTMCell and Lstm have in common.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "espalier/nn/cells.h"
#include "espalier/ops/recurrent/recurrence.h"

namespace espalier::nn {

/// What the options make of the equations at LSTMCell.
struct LstmForm {
  int64_t hidden = 0;
  bool bias = true;
  int64_t projection = 0;
  bool peepholes = false, coupled = false, layer_norm = false;

  /// Without options: then all steps are one op, and a step one memory cell.
  bool plain() const { return projection == 0 && !peepholes && !coupled && !layer_norm; }
  int64_t gates() const { return coupled ? 3 : 4; }
  /// The width of h.
  int64_t width() const { return projection ? projection : hidden; }
  /// Throws Error, naming `layer`, unless the sizes fit.
  void check(std::string_view layer) const;
};

struct LstmParameter {
  std::string name;
  Shape shape;
  Initializer initializer;
};
/// Of one layer and direction. An input width −1 is open.
std::vector<LstmParameter> lstm_parameters(const LstmForm& form, int64_t in,
                                           const std::optional<Initializer>& initializer);

/// The values of these; what the form does not have is undefined.
struct LstmWeights {
  Variable weight_ih, weight_hh, bias_ih = {}, bias_hh = {}, weight_hr = {}, weight_peephole = {};
  Variable norm_ih = {}, norm_hh = {}, norm_c = {}, bias_c = {};
};
LstmWeights lstm_weights(const LstmForm& form, const std::function<Variable(const std::string&)>& parameter);

/// What the inputs [..., in] of all steps add to the gates: [..., gates · hidden].
Variable lstm_inputs(const LstmForm& form, const LstmWeights& weights, const Variable& x);
/// The state after a step, from what its inputs [n, …] add to the gates and the state before. `bias` is that
/// of the inputs, unless they have it already; only plain forms take one.
LSTMState lstm_step(const LstmForm& form, const LstmWeights& weights, const Variable& inputs,
                    const LSTMState& before, const Variable& bias = {});

/// The loop over the steps that `recurrence` is for plain forms. It is one scan eagerly, and downstream of
/// feeds if the number of steps comes with a batch. Else steps have nodes of their own, which `Deferred`
/// joins with those of other calls.
RecurrenceOutputs lstm_over_steps(const LstmForm& form, const LstmWeights& weights, const Variable& inputs,
                                  const LSTMState& first, const RecurrenceForm& loop,
                                  const Variable& lengths);

}  // namespace espalier::nn
