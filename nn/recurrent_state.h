// The state that the recurrent layers share: parameters of all layers and directions, and their runs.
#pragma once
#include "espalier/nn/layer_state.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/recurrent/recurrence.h"

namespace espalier::nn {

class RecurrentState : public LayerStateOf<RecurrentState> {
 public:
  /// `kind` names the layer in errors.
  RecurrentState(std::string_view kind, RecurrentCell cell, int64_t hidden, const RecurrentOptions& options);
  void create_for(int64_t in, DType dtype) { create_with("input width", in, dtype); }

  Variable forward(const Variable& x) override { return run(x, {}).outputs; }
  SequenceOutput<LSTMState> run(const Variable& x, const LSTMState& state);
  PackedOutput<LSTMState> run(const data::PackedSequence& x, const LSTMState& state);

 private:
  /// Over [steps, batch, width], or over the rows of packed sequences.
  SequenceOutput<LSTMState> over_steps(Variable x, const LSTMState& state, const Dims& batch_sizes);
  RecurrenceOutputs one_direction(const Variable& x, int64_t layer, bool reverse, const LSTMState& state,
                                  const Dims& batch_sizes);
  Variable dropped(const Variable& x, const Dims& batch_sizes) const;
  Variable weight(const std::string& name) const;
  int64_t directions() const { return options_.bidirectional ? 2 : 1; }
  void check_state(const LSTMState& state, const Variable& x, int64_t batch) const;

  RecurrentCell cell_;
  int64_t hidden_;
  RecurrentOptions options_;
};

}  // namespace espalier::nn
