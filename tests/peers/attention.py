"""Attention with masks, grouped heads and odd sizes."""
import math

import torch

from draw import REALS
from operation import Operation


def draw_attention(d):
    rank = d.integer(2, 5)
    leading = [d.integer(1, 2) for _ in range(rank - 3)]
    key_heads, group = d.integer(1, 2), d.integer(1, 3)
    long = d.chance(0.15)
    queries, keys = (d.integer(60, 140), d.integer(100, 260)) if long else (d.integer(1, 7), d.integer(1, 9))
    width, value_width = (d.choice((1, 3, 8, 16, 17, 33)) for _ in range(2))
    heads = [key_heads * group] if rank > 2 else []
    of_keys = [key_heads] if rank > 2 else []
    inputs = [d.tensor(leading + heads + [queries, width], -1, 1),
              d.tensor(leading + of_keys + [keys, width], -1, 1),
              d.tensor(leading + of_keys + [keys, value_width], -1, 1)]
    attributes = {"causal": d.flag()}
    if attributes["causal"] and d.flag():
        attributes["past"] = d.integer(0, keys)
    if d.chance(0.3):
        attributes["scale"] = d.real(0.1, 1)
    if d.chance(0.5):
        shape = [n if d.flag() else 1 for n in leading + heads + [queries, keys]][d.integer(0, rank - 1):]
        attributes["mask"] = len(inputs)
        inputs.append(d.integers(shape, 0, 2, torch.int64) > 0 if d.flag() else d.tensor(shape, -1, 1))
    if d.chance(0.3):
        attributes["key_mask"] = len(inputs)
        inputs.append(d.integers(leading + [keys], 0, 3, torch.int64) > 0)
    return inputs, attributes


def attend(q, k, v, *masks, causal, past=0, scale=None, mask=None, key_mask=None):
    """By PyTorch's products: its own function neither takes both masks nor differentiates twice."""
    if q.dim() > 2:
        group = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    seen = torch.ones(scores.shape, dtype=torch.bool)
    if causal:
        seen = seen.tril(past)
    if mask is not None and masks[mask - 3].dtype == torch.bool:
        seen = seen & masks[mask - 3]
    elif mask is not None:
        scores = scores + masks[mask - 3]
    if key_mask is not None:
        there = masks[key_mask - 3].unsqueeze(-2)
        seen = seen & (there.unsqueeze(-3) if q.dim() > 2 else there)
    some = seen.any(-1, keepdim=True)  # a query that sees no key gives zeros
    weights = torch.softmax(scores.masked_fill(~seen & some, -math.inf), -1) * some
    return weights @ v, weights


OPERATIONS = [
    Operation("scaled_dot_product_attention", draw_attention, lambda *x, **a: attend(*x, **a)[0], REALS, loose=8),
    Operation("scaled_dot_product_attention_and_weights", draw_attention, attend, REALS, loose=8),
]
