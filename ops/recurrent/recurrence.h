// A recurrent layer as one op over all steps, beside the product of its inputs with their weights.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

enum class RecurrentCell : uint8_t { tanh, relu, lstm, gru };
std::string_view name(RecurrentCell cell);
/// Rows of weights for each unit: 1, 4 (input, forget, cell, output) or 3 (reset, update, new).
int64_t gates_of(RecurrentCell cell);

/// Which recurrence, and over which rows.
struct RecurrenceForm {
  RecurrentCell cell = RecurrentCell::lstm;
  bool reverse = false;  ///< from the last step to the first
  /// Packed sequences: how many rows each step has, never more than the step before. Empty: the steps are the
  /// first axis of x, and all have the rows of its second.
  Dims batch_sizes = {};
};

/// `x` [steps, batch, gates · hidden] or, packed, [rows, gates · hidden]: the inputs times their weights.
/// `weight` [gates · hidden, hidden] multiplies the state before. The states `h` and, of an LSTM, `c` are
/// [batch, hidden]. Biases [gates · hidden], of the inputs and of the states, are both given or none.
/// `lengths` [batch], int64 within [0, steps], says of which steps a padded sequence consists, the first
/// ones: at others its state stays as it is, and the output is 0. Packed rows have none.
struct RecurrenceInputs {
  Variable x, weight, h, c = {}, bias_ih = {}, bias_hh = {}, lengths = {};
};

/// The states of all steps, [steps, batch, hidden] or [rows, hidden], and those after the last one of each
/// row, [batch, hidden]. `last_c` is undefined unless the cell is an LSTM.
struct RecurrenceOutputs {
  Variable h, last_h, last_c = {};
};

/// The equations are those of nn/cells.h. Shapes must fit: layers check them. Second derivatives are those of
/// the cells' equations, step by step: UnsupportedError if the number of steps is that of an open axis.
RecurrenceOutputs recurrence(const RecurrenceInputs& in, const RecurrenceForm& form);

}  // namespace espalier
