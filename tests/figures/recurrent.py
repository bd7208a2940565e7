#!/usr/bin/env python3
"""Writes recurrent.h: what PyTorch's recurrent layers compute in float64, with gradients.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/figures/recurrent.py > tests/figures/recurrent.h

Inputs are numbers(…, 37, 19, 8), initial states numbers(…, 29, 13, 8) and numbers(…, 23, 17, 8). Figures are the outputs
(padded, of packed sequences), the last states, and gradients of the weighed sum of all these: those of the input, the
initial states, and the parameters in the order of their names.
"""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_default_dtype(torch.float64)
STEPS, BATCH, IN, HIDDEN = 4, 3, 2, 2
LENGTHS = [2, 4, 1]


def numbers(shape, a, b, size):
    count = 1
    for s in shape:
        count *= s
    return torch.tensor([((a * i) % b - b // 2) / size for i in range(count)]).reshape(shape)


def weighed(y):
    return (y * numbers(y.shape, 7, 11, 8)).sum()


figures = {}


def note(name, layer, packed=False, state=True):
    with torch.no_grad():
        for k, (_, p) in enumerate(sorted(layer.named_parameters())):
            p.copy_(numbers(p.shape, 31 + 2 * k, 17, 16))
    shape = (BATCH, STEPS, IN) if layer.batch_first else (STEPS, BATCH, IN)
    x = numbers(shape, 37, 19, 8).requires_grad_()
    lstm = isinstance(layer, torch.nn.LSTM)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    widths = [layer.proj_size or layer.hidden_size, layer.hidden_size]
    forms = list(zip(widths, [(29, 13), (23, 17)]))[: 2 if lstm else 1]
    given = [numbers((count, BATCH, width), *form, 8).requires_grad_() for width, form in forms]
    arguments = () if not state else (tuple(given) if lstm else given[0],)
    fed = pack_padded_sequence(x, LENGTHS, batch_first=layer.batch_first, enforce_sorted=False) if packed else x
    y, last = layer(fed, *arguments)
    if packed:
        y, _ = pad_packed_sequence(y, batch_first=layer.batch_first)
    results = [y, *last] if lstm else [y, last]
    sum(weighed(r) for r in results).backward()
    leaves = [x] + (given if state else []) + [p for _, p in sorted(layer.named_parameters())]
    figures[name] = [v for r in results for v in r.detach().flatten().tolist()] + [
        v for leaf in leaves for v in leaf.grad.flatten().tolist()
    ]


for name, make in {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.items():
    note(name, make(IN, HIDDEN))
    note(f"{name} without state", make(IN, HIDDEN), state=False)
    note(f"{name} without bias", make(IN, HIDDEN, bias=False))
    note(f"{name} of all", make(IN, HIDDEN, num_layers=2, bidirectional=True, batch_first=True))
    note(f"{name} packed", make(IN, HIDDEN, num_layers=2, bidirectional=True), packed=True)
for name, options in {"": {}, " of all": {"num_layers": 2, "bidirectional": True, "batch_first": True}}.items():
    note(f"lstm projected{name}", torch.nn.LSTM(IN, HIDDEN + 1, proj_size=HIDDEN, **options))
note("lstm projected packed", torch.nn.LSTM(IN, HIDDEN + 1, num_layers=2, bidirectional=True, proj_size=HIDDEN), packed=True)
note("rnn relu", torch.nn.RNN(IN, HIDDEN, nonlinearity="relu"))

print(f"// Made by recurrent.py with PyTorch {torch.__version__.split('+')[0]}: what its recurrent layers compute in float64.")
print("""// clang-format off
#pragma once
#include <map>
#include <string>
#include <vector>

namespace espalier::testing {

inline const std::map<std::string, std::vector<double>> recurrent_figures{""")
for name, values in figures.items():
    print(f'    {{"{name}",\n     {{', end="")
    for i in range(0, len(values), 10):
        print(("," if i else "") + ("\n      " if i else "") + ", ".join(repr(v) for v in values[i:i + 10]), end="")
    print("}},")
print("};\n\n}  // namespace espalier::testing")
