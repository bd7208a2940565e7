// Recurrent layers of one direction.
#include "bridge.h"
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

}  // namespace

std::vector<Row> recurrent_rows() {
  return {{"recurrent_tanh", layer<RecurrentCell::tanh>},
          {"recurrent_relu", layer<RecurrentCell::relu>},
          {"recurrent_lstm", layer<RecurrentCell::lstm>},
          {"recurrent_gru", layer<RecurrentCell::gru>}};
}

}  // namespace peers
