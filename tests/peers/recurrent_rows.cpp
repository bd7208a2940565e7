// Recurrent layers of one direction.
#include "bridge.h"
#include "espalier/ops/recurrent/memory_cell.h"
#include "espalier/ops/recurrent/recurrence.h"

namespace peers {
namespace {

using namespace espalier;

/// Of x, the weights, the states, and the biases, or none.
template <RecurrentCell cell>
Outputs layer(const Case& c) {
  constexpr bool lstm = cell == RecurrentCell::lstm;
  RecurrenceInputs in{matmul(c[0], transpose(c[1])), c[2], c[3]};
  if (lstm) in.c = c[4];
  in.bias_ih = c.optional(lstm ? 5 : 4);
  in.bias_hh = c.optional(lstm ? 6 : 5);
  const RecurrenceOutputs out = recurrence(in, {.cell = cell, .reverse = c.flag("reverse")});
  return lstm ? Outputs{out.h, out.last_h, out.last_c} : Outputs{out.h, out.last_h};
}

/// Of x, the states h and c, both weights, and both biases, or none.
Outputs lstm_cell(const Case& c) {
  std::vector<Variable> summands{matmul(c[0], transpose(c[3])), matmul(c[1], transpose(c[4]))};
  for (const size_t bias : {5, 6})
    if (c.optional(bias).defined()) summands.push_back(c.optional(bias));
  MemoryCellForm form{c[1].shape()[1], 1, {}};
  for (size_t p = 0; p < summands.size(); ++p)
    for (const int64_t block : {0, 3, 1, 2}) form.blocks.push_back(block);
  const Variable memories[] = {c[2]};
  const auto [h, next] = memory_cell(form, summands, memories);
  return {h, next};
}

}  // namespace

std::vector<Row> recurrent_rows() {
  return {{"recurrent_tanh", layer<RecurrentCell::tanh>},
          {"recurrent_relu", layer<RecurrentCell::relu>},
          {"recurrent_lstm", layer<RecurrentCell::lstm>},
          {"recurrent_gru", layer<RecurrentCell::gru>},
          {"lstm_cell", lstm_cell}};
}

}  // namespace peers
