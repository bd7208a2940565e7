"""Recurrent layers of one direction, with sequences of several lengths, and with a projection."""
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
        attributes = {"reverse": d.flag()}
        if d.chance(0.4):
            attributes["lengths"] = [d.integer(0, steps) for _ in range(batch)]
        return inputs, attributes

    def alone(x, weight_ih, weight_hh, others, reverse):
        states = tuple(s.unsqueeze(0) for s in others[:1 + lstm])
        biases = list(others[1 + lstm:])
        x = x.flip(0) if reverse else x
        y, *last = FUNCTIONS[cell](x, states if lstm else states[0], [weight_ih, weight_hh] + biases, bool(biases), 1,
                                   0.0, False, False, False)
        return [y.flip(0) if reverse else y] + [s.squeeze(0) for s in last]

    def run(x, weight_ih, weight_hh, *others, reverse, lengths=None):
        if lengths is None:
            return alone(x, weight_ih, weight_hh, others, reverse)
        parts = []  # of each sequence
        for b, length in enumerate(lengths):
            first = [s[b:b + 1] for s in others[:1 + lstm]]
            behind = x.new_zeros([x.shape[0] - length, 1, weight_hh.shape[1]])
            if length == 0:
                parts.append([behind] + first)
                continue
            y, *last = alone(x[:length, b:b + 1], weight_ih, weight_hh, first + list(others[1 + lstm:]), reverse)
            parts.append([torch.cat([y, behind])] + last)
        return [torch.cat(same, 1 if k == 0 else 0) for k, same in enumerate(zip(*parts))]

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


def projected():
    """x [steps, batch, in], both weights, h [batch, projection] and c [batch, hidden], the projection [projection,
    hidden], and the biases, or none."""

    def draw(d):
        steps, batch, width, hidden = d.integer(1, 5), d.integer(1, 4), d.integer(1, 5), d.integer(2, 9)
        narrow, bound = d.integer(1, hidden - 1), hidden**-0.5
        inputs = [d.tensor([steps, batch, width], -1, 1), d.tensor([4 * hidden, width], -1, 1),
                  d.tensor([4 * hidden, narrow], -bound, bound), d.tensor([batch, narrow], -1, 1),
                  d.tensor([batch, hidden], -1, 1), d.tensor([narrow, hidden], -bound, bound)]
        if d.flag():
            inputs += [d.tensor([4 * hidden], -1, 1), d.tensor([4 * hidden], -1, 1)]
        return inputs, {"reverse": d.flag()}

    def run(x, weight_ih, weight_hh, h, c, weight_hr, *biases, reverse):
        x = x.flip(0) if reverse else x
        weights = [weight_ih, weight_hh, *biases, weight_hr]
        y, *last = torch._VF.lstm(x, (h.unsqueeze(0), c.unsqueeze(0)), weights, bool(biases), 1, 0.0, False, False, False)
        return [y.flip(0) if reverse else y] + [s.squeeze(0) for s in last]

    return Operation("lstm_projected", draw, run, REALS, layer=True)


OPERATIONS = [layer(cell) for cell in GATES] + [lstm_cell(), projected()]
