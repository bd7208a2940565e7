// The state that the recurrent layers share: parameters of all layers and directions, and their runs.
#pragma once
#include "espalier/nn/layer_state.h"
#include "espalier/nn/lstm_step.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/recurrent/recurrence.h"

namespace espalier::nn {

class RecurrentState : public LayerStateOf<RecurrentState> {
 public:
  /// `kind` names the layer in errors. Cells but that of an LSTM have the number of hidden units alone.
  RecurrentState(std::string_view kind, RecurrentCell cell, const LstmForm& form,
                 const RecurrentOptions& options);
  void create_for(int64_t in, DType dtype) { create_with("input width", in, dtype); }

  Variable forward(const Variable& x) override { return run(x, {}, {}).outputs; }
  /// Undefined lengths: all sequences have all steps.
  SequenceOutput<LSTMState> run(const Variable& x, const LSTMState& state, const Variable& lengths);
  PackedOutput<LSTMState> run(const data::PackedSequence& x, const LSTMState& state);

 private:
  /// Of which rows the steps of a call consist.
  struct Steps {
    Dims batch_sizes = {};  ///< of packed sequences
    Variable lengths = {};  ///< of padded ones
  };
  /// Over [steps, batch, width], or over the rows of packed sequences.
  SequenceOutput<LSTMState> over_steps(Variable x, const LSTMState& state, const Steps& steps);
  RecurrenceOutputs one_direction(const Variable& x, int64_t layer, bool reverse, const LSTMState& state,
                                  const Steps& steps);
  RecurrenceOutputs with_options(const Variable& x, const std::string& of, LSTMState first,
                                 const RecurrenceForm& form, const Variable& lengths) const;
  LSTMState zeros_for(const Variable& sums, const Dims& batch_sizes) const;
  Variable dropped(const Variable& x, const Dims& batch_sizes) const;
  Variable weight(const std::string& name) const;
  int64_t directions() const { return options_.bidirectional ? 2 : 1; }
  void check_state(const LSTMState& state, const Variable& x, int64_t batch) const;

  RecurrentCell cell_;
  LstmForm form_;
  RecurrentOptions options_;
};

}  // namespace espalier::nn
