#!/usr/bin/env python3
"""Writes transformers.h: what PyTorch's attention and transformer layers compute in float64, with gradients.

    venv/bin/python tests/figures/transformers.py > tests/figures/transformers.h

Parameters, inputs and losses are those of layers.py.
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


figures = {}


def note(name, module, call):
    spread(module)
    values = call()
    values = values if isinstance(values, tuple) else (values,)
    weighed(values[0]).backward()
    found = [v for y in values for v in y.detach().flatten().tolist()]
    # Sums of each gradient, and its elements weighed: a state dict has thousands.
    for _, p in sorted(module.named_parameters()):
        found += [p.grad.sum().item(), weighed(p.grad).item()]
    figures[name] = found


X, MEMORY = numbers((2, 3, 4), 37, 19, 8), numbers((2, 5, 4), 41, 23, 8)
KEYS, VALUES = numbers((2, 5, 3), 43, 29, 8), numbers((2, 5, 2), 47, 31, 8)
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(3)
PADDING = torch.tensor([[False, False, False, False, True], [False, True, False, False, False]])  # True: not there
BIAS = numbers((3, 5), 13, 7, 4)

attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
note("attention", attention, lambda: attention(X, X, X, need_weights=False)[0])
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
note("attention, causal", attention, lambda: attention(X, X, X, attn_mask=CAUSAL, need_weights=False)[0])
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
note("attention, weights", attention, lambda: attention(X, MEMORY, MEMORY, key_padding_mask=PADDING, attn_mask=BIAS))
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
note("attention, weights of heads", attention,
     lambda: attention(X, MEMORY, MEMORY, key_padding_mask=PADDING, average_attn_weights=False))
attention = torch.nn.MultiheadAttention(4, 2, kdim=3, vdim=2, bias=False, batch_first=True)
note("attention, widths", attention, lambda: attention(X, KEYS, VALUES))
attention = torch.nn.MultiheadAttention(4, 2, add_bias_kv=True, batch_first=True)
note("attention, bias_kv", attention, lambda: attention(X, MEMORY, MEMORY, key_padding_mask=PADDING, attn_mask=BIAS))

for first in (False, True):
    o = dict(dim_feedforward=6, dropout=0.0, norm_first=first, activation="gelu" if first else "relu", batch_first=True)
    name = ", norm first" if first else ""
    layer = torch.nn.TransformerEncoderLayer(4, 2, **o)
    note("encoder layer" + name, layer, lambda: layer(X, src_mask=CAUSAL))
    layer = torch.nn.TransformerDecoderLayer(4, 2, **o)
    note("decoder layer" + name, layer,
         lambda: layer(X, MEMORY, tgt_mask=CAUSAL, memory_key_padding_mask=PADDING))
    part = torch.nn.TransformerEncoderLayer(4, 2, **o)
    layer = torch.nn.TransformerEncoder(part, 2, norm=torch.nn.LayerNorm(4), enable_nested_tensor=False)
    note("encoder" + name, layer, lambda: layer(MEMORY, src_key_padding_mask=PADDING))
    part = torch.nn.TransformerDecoderLayer(4, 2, **o)
    layer = torch.nn.TransformerDecoder(part, 2, norm=torch.nn.LayerNorm(4))
    note("decoder" + name, layer, lambda: layer(X, MEMORY, tgt_mask=CAUSAL))
    layer = torch.nn.Transformer(4, 2, 1, 2, **o)
    note("transformer" + name, layer, lambda: layer(
        MEMORY, X, tgt_mask=CAUSAL, src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING))

print(f"// Made by transformers.py with PyTorch {torch.__version__.split('+')[0]}.")
print("""// clang-format off
#pragma once
#include <map>
#include <string>
#include <vector>

namespace espalier::testing {

inline const std::map<std::string, std::vector<double>> transformer_figures{""")
for name, values in figures.items():
    print(f'    {{"{name}",\n     {{', end="")
    for i in range(0, len(values), 6):
        print(("," if i else "") + ("\n      " if i else "") + ", ".join(repr(v) for v in values[i:i + 6]), end="")
    print("}},")
print("};\n\n}  // namespace espalier::testing")
