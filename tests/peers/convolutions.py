"""Convolutions along one to three axes, and their transposes."""
import torch.nn.functional as F

from operation import Operation


def per_axis(d, axes, low, high):
    """One number for all axes, or one for each."""
    return [d.integer(low, high) for _ in range(1 if d.chance(0.3) else axes)]


def for_each(numbers, axes):
    return list(numbers) * (axes if len(numbers) == 1 else 1)


def batch_of(d):
    """Now and then without an example, or with many."""
    return 0 if d.chance(0.04) else d.choice((8, 17)) if d.chance(0.05) else d.integer(1, 3)


def spans(kernel, dilation):
    return [by * (size - 1) + 1 for size, by in zip(kernel, dilation)]


def draw_channels(d):
    """How many groups, and the channels of each: of x, and of the result."""
    if d.chance(0.15):  # each channel by itself
        return d.integer(2, 9), 1, d.integer(1, 2)
    if d.chance(0.1):  # as many as fill a register
        return d.integer(1, 2), d.choice((8, 16, 33)), d.choice((8, 16, 33))
    return d.choice((1, 1, 2, 3)), d.integer(1, 3), d.integer(1, 3)


def draw_sizes(d, least):
    """Of an image: `least` along each axis."""
    more = 20 if len(least) < 3 and d.chance(0.1) else 5
    return [max(1, size) + d.integer(0, more) for size in least]


def draw_form(d):
    axes = d.integer(1, 3)
    kernel = [1] * axes if d.chance(0.1) else [d.integer(1, 4) for _ in range(axes)]
    return axes, kernel, per_axis(d, axes, 1, 3), per_axis(d, axes, 1, 2)


def bias_of(d, channels):
    return [d.tensor([channels], -1, 1)] if d.flag() else []


def draw_conv(d):
    axes, kernel, stride, dilation = draw_form(d)
    groups, inner, outer = draw_channels(d)
    attributes = {"stride": stride, "dilation": dilation, "groups": groups}
    before = after = [0] * axes
    if d.chance(0.15):
        attributes.update(same=True, stride=[1])
    else:
        before = per_axis(d, axes, 0, 2)
        after = [d.integer(0, 2) for _ in before] if d.chance(0.3) else before
        attributes.update(before=before, after=after)
    reach = zip(spans(kernel, for_each(dilation, axes)), for_each(before, axes), for_each(after, axes))
    image = [groups * inner] + draw_sizes(d, [span - first - last for span, first, last in reach])
    leading = [] if d.chance(0.15) else [batch_of(d)]
    return [d.tensor(leading + image), d.tensor([groups * outer, inner] + kernel, -1, 1)] + bias_of(d, groups * outer), attributes


def conv(x, kernels, bias=None, *, stride, dilation, groups, before=None, after=None, same=False):
    axes = kernels.dim() - 2
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    if same:
        return function(x, kernels, bias, 1, "same", dilation, groups)
    if before == after:
        return function(x, kernels, bias, stride, before, dilation, groups)
    ends = zip(reversed(for_each(before, axes)), reversed(for_each(after, axes)))
    return function(F.pad(x, [number for pair in ends for number in pair]), kernels, bias, stride, 0, dilation, groups)


def draw_conv_transpose(d):
    axes, kernel, stride, dilation = draw_form(d)
    groups, inner, outer = draw_channels(d)
    sizes = draw_sizes(d, [1] * axes)
    spread = zip(sizes, for_each(stride, axes), spans(kernel, for_each(dilation, axes)))
    whole = [(size - 1) * by + span for size, by, span in spread]
    leading = [] if d.chance(0.15) else [batch_of(d)]
    return [d.tensor(leading + [groups * inner] + sizes),
            d.tensor([groups * inner, outer] + kernel, -1, 1)] + bias_of(d, groups * outer), {
                "stride": stride, "dilation": dilation, "groups": groups,
                "padding": [d.integer(0, min(2, (size - 1) // 2)) for size in whole],
                "output_padding": [d.integer(0, by - 1) for by in stride]}


def conv_transpose(x, kernels, bias=None, *, stride, padding, output_padding, dilation, groups):
    axes = kernels.dim() - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    return function(x, kernels, bias, stride, padding, output_padding, groups, dilation)


OPERATIONS = [
    Operation("conv", draw_conv, conv, loose=4),
    Operation("conv_transpose", draw_conv_transpose, conv_transpose, loose=4),
]
