"""Recurrent layers of one direction."""
import torch

from draw import REALS
from operation import Operation

GATES = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}
FUNCTIONS = {"tanh": torch._VF.rnn_tanh, "relu": torch._VF.rnn_relu, "lstm": torch._VF.lstm, "gru": torch._VF.gru}


def layer(cell):
    """x [steps, batch, in], the weights, h and for an LSTM c [batch, hidden], and the biases, or none."""
    lstm = cell == "lstm"

    def draw(d):
        steps, batch, width, hidden = d.integer(1, 6), d.integer(1, 4), d.integer(1, 5), d.integer(1, 9)
        if d.chance(0.1):
            hidden = 70
        rows, bound = GATES[cell] * hidden, hidden**-0.5  # of weights by which rounding does not grow from step to step
        inputs = [d.tensor([steps, batch, width], -1, 1), d.tensor([rows, width], -1, 1),
                  d.tensor([rows, hidden], -bound, bound)]
        inputs += [d.tensor([batch, hidden], -1, 1) for _ in range(1 + lstm)]
        if d.flag():
            inputs += [d.tensor([rows], -1, 1), d.tensor([rows], -1, 1)]
        return inputs, {"reverse": d.flag()}

    def run(x, weight_ih, weight_hh, *others, reverse):
        states = tuple(s.unsqueeze(0) for s in others[:1 + lstm])
        biases = list(others[1 + lstm:])
        x = x.flip(0) if reverse else x
        y, *last = FUNCTIONS[cell](x, states if lstm else states[0], [weight_ih, weight_hh] + biases, bool(biases), 1,
                                   0.0, False, False, False)
        return [y.flip(0) if reverse else y] + [s.squeeze(0) for s in last]

    return Operation(f"recurrent_{cell}", draw, run, REALS, layer=True)


def lstm_cell():
    """x [batch, in], h and c [batch, hidden], both weights, and both biases, or none."""

    def draw(d):
        batch, width, hidden = d.integer(1, 4), d.integer(1, 5), d.integer(1, 20)
        bound = hidden**-0.5
        inputs = [d.tensor([batch, width], -1, 1), d.tensor([batch, hidden], -1, 1), d.tensor([batch, hidden], -1, 1),
                  d.tensor([4 * hidden, width], -1, 1), d.tensor([4 * hidden, hidden], -bound, bound)]
        if d.flag():
            inputs += [d.tensor([4 * hidden], -1, 1), d.tensor([4 * hidden], -1, 1)]
        return inputs, {}

    def run(x, h, c, weight_ih, weight_hh, *biases):
        return list(torch._VF.lstm_cell(x, (h, c), weight_ih, weight_hh, *biases))

    return Operation("lstm_cell", draw, run, REALS, layer=True)


OPERATIONS = [layer(cell) for cell in GATES] + [lstm_cell()]
