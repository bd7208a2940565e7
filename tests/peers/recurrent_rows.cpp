// Recurrent layers of one direction, with sequences of several lengths, and with a projection.
#include "bridge.h"
#include "espalier/nn/lstm_step.h"
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
  if (c.has("lengths")) in.lengths = tensor_from(c.integers("lengths"), Shape{c[0].shape()[1]});
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

/// Of x, both weights, h, c, the projection, and both biases, or none.
Outputs lstm_projected(const Case& c) {
  const nn::LstmForm form{
      .hidden = c[4].shape()[1], .bias = c.optional(6).defined(), .projection = c[5].shape()[0]};
  const nn::LstmWeights weights{.weight_ih = c[1],
                                .weight_hh = c[2],
                                .bias_ih = c.optional(6),
                                .bias_hh = c.optional(7),
                                .weight_hr = c[5]};
  const RecurrenceOutputs out = nn::lstm_over_steps(form, weights, nn::lstm_inputs(form, weights, c[0]),
                                                    {c[3], c[4]}, {.reverse = c.flag("reverse")}, {});
  return {out.h, out.last_h, out.last_c};
}

}  // namespace

std::vector<Row> recurrent_rows() {
  return {{"recurrent_tanh", layer<RecurrentCell::tanh>},
          {"recurrent_relu", layer<RecurrentCell::relu>},
          {"recurrent_lstm", layer<RecurrentCell::lstm>},
          {"recurrent_gru", layer<RecurrentCell::gru>},
          {"lstm_cell", lstm_cell},
          {"lstm_projected", lstm_projected}};
}

}  // namespace peers
