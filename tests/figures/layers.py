#!/usr/bin/env python3
"""Writes layers.h: what PyTorch's layers compute in float64, with gradients.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/figures/layers.py > tests/figures/layers.h

Each loss is the sum of the outputs times numbers(…, 7, 11, 8); gradients are those of all parameters, in the order of
their names. What PyTorch lacks (the class-factored softmax) is written here by its formula.
"""
import warnings

import torch

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)


def numbers(shape, a, b, size):
    count = 1
    for s in shape:
        count *= s
    return torch.tensor([((a * i) % b - b // 2) / size for i in range(count)]).reshape(shape)


def spread(module):
    """Gives parameters values, by the order of their names."""
    with torch.no_grad():
        for k, (_, p) in enumerate(sorted(module.named_parameters())):
            p.copy_(numbers(p.shape, 31 + 2 * k, 17, 16))


def weighed(y):
    return (y * numbers(y.shape, 7, 11, 8)).sum()


def gradients(module):
    return [v for _, p in sorted(module.named_parameters()) for v in p.grad.flatten().tolist()]


figures = {}


def note(name, *values):
    figures[name] = [v for part in values for v in (part if isinstance(part, list) else part.detach().flatten().tolist())]


X = [numbers((3, 4), 37, 19, 8), numbers((3, 4), 41, 23, 8)]

# Cells: the state after two steps, then gradients.
for name, cell in {
    "rnn": torch.nn.RNNCell(4, 2),
    "rnn relu": torch.nn.RNNCell(4, 2, nonlinearity="relu"),
    "rnn without bias": torch.nn.RNNCell(4, 2, bias=False),
    "lstm": torch.nn.LSTMCell(4, 2),
    "lstm without bias": torch.nn.LSTMCell(4, 2, bias=False),
    "gru": torch.nn.GRUCell(4, 2),
    "gru without bias": torch.nn.GRUCell(4, 2, bias=False),
}.items():
    spread(cell)
    state = cell(X[1], cell(X[0]))
    y = torch.cat(state, 1) if isinstance(state, tuple) else state
    weighed(y).backward()
    note(name, y, gradients(cell))

# Normalized weights.
for name, dim in {"weight norm": 0, "weight norm, axis 1": 1, "weight norm of the whole": None}.items():
    layer = torch.nn.utils.weight_norm(torch.nn.Linear(4, 3), dim=dim)
    spread(layer)
    y = layer(X[0])
    weighed(y).backward()
    note(name, y, gradients(layer))

for iterations in (1, 3):
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3), n_power_iterations=iterations)
    spread(layer)
    with torch.no_grad():
        layer.weight_u.copy_(torch.nn.functional.normalize(numbers((3,), 5, 7, 4), dim=0))
        layer.weight_v.copy_(torch.nn.functional.normalize(numbers((4,), 3, 7, 4), dim=0))
    first = layer(X[0])
    y = layer(X[1])
    weighed(y).backward()
    vectors = [layer.weight_u.clone(), layer.weight_v.clone()]
    layer.eval()
    note(f"spectral norm {iterations}", first, y, *vectors, layer(X[0]), gradients(layer))

# Softmax over many classes.
for bias in (False, True):
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 9, [3, 5], div_value=2.0, head_bias=bias)
    spread(layer)
    x = numbers((6, 8), 37, 19, 8)
    target = torch.tensor([0, 8, 3, 5, 2, 4])
    output, loss = layer(x, target)
    (loss + weighed(layer.log_prob(x))).backward()
    name = "adaptive log softmax" + (" with bias" if bias else "")
    note(name, output, loss, layer.log_prob(x), layer.predict(x).double(), gradients(layer))


class ClassFactored(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        count, words = max(classes) + 1, len(classes)
        self.classes = torch.tensor(classes)
        self.class_bias = torch.nn.Parameter(torch.zeros(count))
        self.class_weight = torch.nn.Parameter(torch.zeros(count, 4))
        self.word_bias = torch.nn.Parameter(torch.zeros(words))
        self.word_weight = torch.nn.Parameter(torch.zeros(words, 4))

    def log_prob(self, x):
        of_class = torch.log_softmax(x @ self.class_weight.T + self.class_bias, 1)
        logits = x @ self.word_weight.T + self.word_bias
        of_word = torch.stack(
            [logits[:, w] - torch.logsumexp(logits[:, self.classes == c], 1) for w, c in enumerate(self.classes)], 1)
        return of_class[:, self.classes] + of_word


layer = ClassFactored([1, 0, 1, 2, 1, 0])
spread(layer)
log_prob = layer.log_prob(X[0])
output = log_prob[torch.arange(3), torch.tensor([4, 3, 5])]
(-output.mean() + weighed(log_prob)).backward()
note("class-factored softmax", output, log_prob, gradients(layer))

# Running statistics: two steps, then a batch in inference.
for name, layer, shape in [
    ("batch norm", torch.nn.BatchNorm1d(3), (5, 3)),
    ("batch norm of all batches", torch.nn.BatchNorm1d(3, momentum=None), (5, 3)),
    ("instance norm", torch.nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 4)),
]:
    spread(layer)
    for step in range(2):
        weighed(layer(numbers(shape, 37 + 4 * step, 19, 8))).backward()
    layer.eval()
    note(name, layer.running_mean, layer.running_var, layer(numbers(shape, 29, 23, 8)), gradients(layer))

print(f"// Made by layers.py with PyTorch {torch.__version__.split('+')[0]}: what its layers compute in float64.")
print("""// clang-format off
#pragma once
#include <map>
#include <string>
#include <vector>

namespace espalier::testing {

inline const std::map<std::string, std::vector<double>> layer_figures{""")
for name, values in figures.items():
    print(f'    {{"{name}",\n     {{', end="")
    for i in range(0, len(values), 6):
        print(("," if i else "") + ("\n      " if i else "") + ", ".join(repr(v) for v in values[i:i + 6]), end="")
    print("}},")
print("};\n\n}  // namespace espalier::testing")
