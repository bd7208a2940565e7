"""Convolutions along one to three axes, their transposes, and what plans compute behind them."""
import torch
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


def draw_many_channels(d):
    """An image and kernels for which Winograd's algorithm is taken."""
    inner, outer = d.integer(32, 40), d.integer(32, 40)
    x = d.tensor([2, inner, d.integer(28, 33), d.integer(28, 33)])
    padding = [d.integer(0, 2)]
    return [x, d.tensor([outer, inner, 3, 3], -1, 1)] + bias_of(d, outer), {
        "stride": [1], "dilation": [1], "groups": 1, "before": padding, "after": padding}


def draw_conv(d):
    if d.chance(0.02):
        return draw_many_channels(d)
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
                "output_padding": [d.integer(0, max(by, apart) - 1)
                                   for by, apart in zip(for_each(stride, axes), for_each(dilation, axes))]}


def conv_transpose(x, kernels, bias=None, *, stride, padding, output_padding, dilation, groups):
    axes = kernels.dim() - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    return function(x, kernels, bias, stride, padding, output_padding, groups, dilation)


# Behind a convolution: what keeps the shape, what needs that of the first result, what changes it, and what comes last.
SAME, FITTING = ("relu", "sigmoid", "scale", "shift"), ("skip", "shortcut")
OTHER, LAST = ("conv", "max_pool", "avg_pool", "concat", "slice", "pad"), ("mean", "sum", "max", "flatten", "merge")


def draw_chain(d):
    axes, inner, channels = d.integer(1, 3), d.integer(1, 4), d.choice((1, 2, 3, 4, 8, 17))
    kernel, padding = [d.integer(1, 3) for _ in range(axes)], d.integer(0, 1)
    sizes = draw_sizes(d, [size - 2 * padding for size in kernel])
    inputs = [d.tensor([d.integer(1, 3), inner] + sizes), d.tensor([channels, inner] + kernel, -1, 1), d.tensor([channels])]
    sizes, steps = [n + 2 * padding - size + 1 for n, size in zip(sizes, kernel)], []
    first = [channels] + sizes
    for _ in range(d.integer(1, 5)):
        step = d.choice(SAME + OTHER + FITTING)
        if (step in FITTING and [channels] + sizes != first or "pool" in step and min(sizes) < 2
                or step == "slice" and channels < 2):
            continue
        steps.append(step)
        if step in ("scale", "shift"):
            inputs.append(d.tensor([channels]))
        elif step == "shortcut":
            inputs.append(d.tensor(inputs[1].shape, -1, 1))
        elif step == "conv":
            inputs.append(d.tensor([d.integer(1, 9), channels] + [1] * axes, -1, 1))
            channels = inputs[-1].size(0)
        elif "pool" in step:
            sizes = [n // 2 for n in sizes]
        elif step == "concat":
            channels *= 2
        elif step == "slice":
            channels -= 1
        elif step == "pad":
            sizes = [n + 1 for n in sizes]
    if d.flag():
        steps.append(d.choice(LAST))
    return inputs, {"padding": padding, "steps": steps}


def conv_chain(x, kernels, bias, *others, padding, steps):
    axes, others = x.dim() - 2, iter(others)
    convolution, max_pool, avg_pool = ((F.conv1d, F.max_pool1d, F.avg_pool1d), (F.conv2d, F.max_pool2d, F.avg_pool2d),
                                       (F.conv3d, F.max_pool3d, F.avg_pool3d))[axes - 1]
    y = first = convolution(x, kernels, bias, padding=padding)

    def along_channels():
        return next(others).reshape([-1] + [1] * axes)

    for step in steps:
        y = {"relu": lambda: y.relu(), "sigmoid": lambda: y.sigmoid(), "scale": lambda: y * along_channels(),
             "shift": lambda: y + along_channels(), "skip": lambda: y + first,
             "shortcut": lambda: y + convolution(x, next(others), padding=padding), "conv": lambda: convolution(y, next(others)),
             "max_pool": lambda: max_pool(y, 2), "avg_pool": lambda: avg_pool(y, 2),
             "concat": lambda: torch.cat([y, (-y).relu()], 1), "slice": lambda: y[:, 1:],
             "pad": lambda: F.pad(y, [1, 0] * axes), "mean": lambda: y.flatten(2).mean(2), "sum": lambda: y.sum(1, True),
             "max": lambda: y.amax((0, 2), True), "flatten": lambda: y.flatten(1), "merge": lambda: y.flatten(2)}[step]()
    return y


OPERATIONS = [
    Operation("conv", draw_conv, conv, loose=4, plans=0.3),
    Operation("conv_transpose", draw_conv_transpose, conv_transpose, loose=4, plans=0.3),
    # Of singles: where 16-bit sums are rounded decides on which side of a corner they are.
    Operation("conv_chain", draw_chain, conv_chain, (torch.float32, torch.float64), loose=16, layer=True, plans=0.6),
]
