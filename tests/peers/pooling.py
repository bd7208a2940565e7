"""Pooling along one to three axes."""
import torch.nn.functional as F

from convolutions import batch_of, draw_sizes, for_each, per_axis, spans
from draw import NUMBERS
from operation import Operation


def reads_none(size, kernel, stride, padding, dilation):
    """Whether a window has all of its elements in the padding, as dilated ones of few elements may."""
    begins = range(-padding, size + padding - dilation * (kernel - 1), stride)
    return any(all(not 0 <= begin + dilation * i < size for i in range(kernel)) for begin in begins)


def draw_windows(d, dilated):
    """Windows of an image that has one at least."""
    axes = d.integer(1, 3)
    kernel = per_axis(d, axes, 1, 4)
    dilation = per_axis(d, axes, 1, 2) if dilated else [1]
    padding = [d.integer(0, size // 2) for size in kernel]
    each = zip(spans(for_each(kernel, axes), for_each(dilation, axes)), for_each(padding, axes))
    sizes = draw_sizes(d, [span - 2 * ends for span, ends in each])
    stride = None if d.chance(0.3) else per_axis(d, axes, 1, 3)
    attributes = {"kernel": kernel, "stride": stride, "padding": padding, "ceil": d.flag()}
    lists = [for_each(numbers, axes) for numbers in (kernel, stride or kernel, padding, dilation)]
    if any(reads_none(*numbers) for numbers in zip(sizes, *lists)):  # PyTorch's gradient writes outside of the image
        dilation = [1]
    if dilated:
        attributes["dilation"] = dilation
    return [d.tensor([batch_of(d), d.integer(1, 4)] + sizes)], attributes


def draw_average(d):
    inputs, attributes = draw_windows(d, False)
    return inputs, {**attributes, "count_padding": d.flag()}


def max_pool(indices):
    def pooled(x, kernel, stride, padding, ceil, dilation):
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.dim() - 3]
        return function(x, kernel, stride, padding, dilation, ceil, indices)

    return pooled


def avg_pool(x, kernel, stride, padding, ceil, count_padding):
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3]
    return function(x, kernel, stride, padding, ceil, count_padding)


def draw_parts(d):
    axes = d.integer(1, 3)
    return [d.tensor([batch_of(d), d.integer(1, 4)] + draw_sizes(d, [1] * axes))], {"parts": per_axis(d, axes, 1, 7)}


def adaptive(*functions):
    def pooled(x, parts):
        return functions[x.dim() - 3](x, for_each(parts, x.dim() - 2))

    return pooled


OPERATIONS = [
    Operation("max_pool", lambda d: draw_windows(d, True), max_pool(False), NUMBERS, special=True),
    Operation("max_pool_with_indices", lambda d: draw_windows(d, True), max_pool(True), NUMBERS, special=True),
    Operation("avg_pool", draw_average, avg_pool, special=True),
    Operation("adaptive_max_pool", draw_parts,
              adaptive(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d), special=True),
    Operation("adaptive_avg_pool", draw_parts,
              adaptive(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), special=True),
]
