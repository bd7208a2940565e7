#!/usr/bin/env python3
"""Writes casts.h: what NumPy's astype, and for bfloat16 PyTorch's to, make of numbers between all element types.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/figures/casts.py > tests/figures/casts.h

Reals outside the range of an integer are left out: there astype and to do what the machine does.
"""
import numpy as np
import torch

TYPES = ["float32", "float64", "int32", "int64", "bool", "float16", "bfloat16", "int8", "uint8", "int16"]
NUMBERS = [0, 1, -1, 2, 100, 127, 128, -128, -129, 200, 255, 256, 300, -300, 32767, 32768, -32768, -32769, 40000,
           65504, 70000, 2**31 - 1, 2**31, -2**31, 2**40 + 3, -2**40 - 200, 0.5, -0.5, 1.9, -1.9, 99.99, -99.99,
           254.75, 0.1, 1e-3]


def numbers_of(name):
    """The numbers that the type has, exactly."""
    x = torch.tensor(NUMBERS, dtype=torch.float64)
    same = x.to(getattr(torch, name)).to(torch.float64)
    low, high = (0, 1) if name == "bool" else (-2.0**63, 2.0**63)
    return [n for n, s in zip(NUMBERS, same.tolist()) if n == s and low <= n <= high]


def is_real(name):
    return "float" in name


def cast(values, source, target):
    if "bfloat16" in (source, target):
        x = torch.tensor(values, dtype=torch.float64).to(getattr(torch, source))
        return x.to(getattr(torch, target)).to(torch.float64).tolist()
    with np.errstate(over="ignore"):
        return np.array(values, np.float64).astype(source).astype(target).astype(np.float64).tolist()


def in_range(value, source, target):
    if not is_real(source) or is_real(target) or target == "bool":
        return True
    info = np.iinfo(target)
    return info.min <= np.trunc(value) <= info.max


def text(values):
    def number(v):
        return ("-" if v < 0 else "") + "INFINITY" if np.isinf(v) else repr(v if v != int(v) else int(v)).replace(
            "e-0", "e-")

    return "{" + ", ".join(number(v) for v in values) + "}"


print(f"""// Made by casts.py with NumPy {np.__version__} and PyTorch {torch.__version__.split('+')[0]}.
// clang-format off
#pragma once
#include <cmath>
#include <vector>

#include "espalier/core/dtype.h"

namespace espalier::testing {{

struct CastFigures {{
  DType from, to;
  std::vector<double> values, results;
}};
inline const std::vector<CastFigures> cast_figures{{""")
for source in TYPES:
    for target in TYPES:
        values = [v for v in numbers_of(source) if in_range(v, source, target)]
        names = ["boolean" if t == "bool" else t for t in (source, target)]
        print(f"    {{{names[0]}, {names[1]}, {text(values)}, {text(cast(values, source, target))}}},")
print("};\n\n}  // namespace espalier::testing")
