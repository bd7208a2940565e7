"""Pooling along one to three axes."""
import torch
import torch.nn.functional as F

from convolutions import batch_of, draw_sizes, for_each, per_axis, spans
from draw import NUMBERS
from operation import Operation

SINGLES = (torch.float32, torch.float64)


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


def adaptive(*functions, **options):
    def pooled(x, parts):
        return functions[x.dim() - 3](x, for_each(parts, x.dim() - 2), **options)

    return pooled


def draw_lp(d):
    """Away from 0, where PyTorch's roots have infinite slopes, and negative only for even p, of which alone it
    takes no sign."""
    axes = d.integer(1, 3)
    kernel, p = per_axis(d, axes, 1, 3), d.choice((1.0, 1.5, 2.0, 3.0, 4.0))
    stride = None if d.chance(0.3) else per_axis(d, axes, 1, 3)
    sizes = [d.integer(0, 4) + size for size in for_each(kernel, axes)]
    ends = (-3.0, -0.5) if p in (2.0, 4.0) and d.flag() else (0.5, 3.0)
    return [d.tensor([batch_of(d), d.integer(1, 3)] + sizes, *ends)], {
        "kernel": kernel, "p": p, "stride": stride, "ceil": d.flag()}


def lp_pool(x, kernel, p, stride, ceil):
    axes = x.dim() - 2
    function = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[axes - 1]
    kernel, stride = for_each(kernel, axes), stride and for_each(stride, axes)
    if axes == 1:
        kernel, stride = kernel[0], stride and stride[0]
    return function(x, p, kernel, stride, ceil)


def draw_fractional(d):
    axes = d.integer(2, 3)
    kernel, parts = [d.integer(1, 3) for _ in range(axes)], [d.integer(1, 4) for _ in range(axes)]
    sizes = [size + n + axes - 3 + d.integer(0, 5) for size, n in zip(kernel, parts)]  # PyTorch: one more of three axes
    batch, channels = d.integer(1, 3), d.integer(1, 3)
    attributes = {"kernel": kernel, "parts": parts}
    if d.chance(0.3):
        ratio = [d.integer(20, 60) / 64 for _ in range(axes)]
        counts = [int(size * by) for size, by in zip(sizes, ratio)]
        if all(n >= 1 and size - k >= n + axes - 3 for n, size, k in zip(counts, sizes, kernel)):
            attributes = {"kernel": kernel, "ratio": ratio}
    return [d.tensor([batch, channels] + sizes), d.tensor([batch, channels, axes], 0.0, 0.98)], attributes


def fractional_max_pool(indices):
    def pooled(x, samples, kernel, parts=None, ratio=None):
        function = (F.fractional_max_pool2d, F.fractional_max_pool3d)[x.dim() - 4]
        samples = samples.detach().flip(-1) if x.dim() == 4 else samples.detach()
        return function(x, kernel, parts, ratio, indices, _random_samples=samples.contiguous())

    return pooled


def draw_unpool(d):
    axes = d.integer(1, 3)
    kernel = per_axis(d, axes, 1, 3)
    stride = None if d.chance(0.3) else per_axis(d, axes, 1, 3)
    each, steps = for_each(kernel, axes), for_each(stride or kernel, axes)
    padding = [d.integer(0, size // 2) for size in each]
    sizes = [d.integer(1, 4) for _ in range(axes)]
    default = [(n - 1) * by - 2 * ends + size for n, by, ends, size in zip(sizes, steps, padding, each)]
    if any(size < 1 for size in default):
        padding, default = [0] * axes, [(n - 1) * by + size for n, by, size in zip(sizes, steps, each)]
    attributes = {"kernel": kernel, "stride": stride, "padding": padding}
    if d.flag():
        default = [max(1, size + d.integer(1 - by, by - 1)) for size, by in zip(default, steps)]
        attributes["size"] = default
    planes, places, elements = [d.integer(1, 3), d.integer(1, 3)], torch.Size(default).numel(), torch.Size(sizes).numel()
    rows = torch.rand(planes + [max(places, elements)], generator=d.generator).argsort(-1)  # each place once
    if elements > places:  # some elements share a place, and there all are equal
        return draw_unpool(d)
    return [d.tensor(planes + sizes), rows.clamp(max=max(places, elements) - 1)[..., :elements].reshape(planes + sizes)], attributes


def max_unpool(x, indices, kernel, stride, padding, size=None):
    axes = x.dim() - 2
    function = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[axes - 1]
    kernel, stride = for_each(kernel, axes), stride and for_each(stride, axes)
    return function(x, indices, kernel, stride, padding, size)


def draw_planes(d):
    return [d.tensor([batch_of(d), d.integer(1, 4)] + draw_sizes(d, [1] * d.integer(1, 3)))], {}


def draw_planes_and_p(d):
    return [d.tensor([batch_of(d), d.integer(1, 4)] + draw_sizes(d, [1] * d.integer(1, 3)), 0.5, 3.0)], {
        "p": d.choice((1.0, 1.5, 2.0, 3.0))}


def planes(x):
    return list(range(2, x.dim()))


OPERATIONS = [
    Operation("lp_pool", draw_lp, lp_pool),
    Operation("fractional_max_pool", draw_fractional, fractional_max_pool(False), SINGLES, constant=(1,)),
    Operation("fractional_max_pool_with_indices", draw_fractional, fractional_max_pool(True), SINGLES, constant=(1,)),
    Operation("max_unpool", draw_unpool, max_unpool),
    Operation("global_max_pool", draw_planes, lambda x: x.amax(planes(x), True)),
    Operation("global_avg_pool", draw_planes, lambda x: x.mean(planes(x), True)),
    Operation("global_lp_pool", draw_planes_and_p, lambda x, p: torch.linalg.vector_norm(x, p, planes(x), True)),
    Operation("max_pool", lambda d: draw_windows(d, True), max_pool(False), NUMBERS, special=True),
    Operation("max_pool_with_indices", lambda d: draw_windows(d, True), max_pool(True), NUMBERS, special=True),
    Operation("avg_pool", draw_average, avg_pool, special=True),
    Operation("adaptive_max_pool", draw_parts,
              adaptive(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d), special=True),
    Operation("adaptive_max_pool_with_indices", draw_parts,
              adaptive(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d, return_indices=True),
              special=True),
    Operation("adaptive_avg_pool", draw_parts,
              adaptive(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), special=True),
]
