"""Windows of signals."""
import torch

from draw import REALS
from operation import Operation


def window(name, function, attributes=lambda d: {}):
    """PyTorch's in float64, rounded."""
    def draw(d):
        n = d.choice((257, 1000)) if d.chance(0.1) else d.integer(0, 40)
        return [], {"n": n, "periodic": d.flag(), "dtype": str(d.dtype).removeprefix("torch."), **attributes(d)}

    def rounded(n, periodic, dtype, **attributes):
        return function(n, periodic, dtype=torch.float64, **attributes).to(getattr(torch, dtype))

    return Operation(name, draw, rounded, REALS)


def hamming(n, periodic, alpha, dtype):
    return torch.hamming_window(n, periodic, alpha, 1 - alpha, dtype=dtype)


OPERATIONS = [
    window("hann_window", torch.hann_window),
    window("hamming_window", hamming, lambda d: {"alpha": d.choice((0.54, 25 / 46, 0.5))}),
    window("blackman_window", torch.blackman_window),
]
