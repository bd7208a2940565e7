"""Operations that move elements."""
import torch
import torch.nn.functional as F

from draw import ALL, NUMBERS, REALS
from operation import Operation


def viewing(name, draw, function, **options):
    return Operation(name, draw, function, options.pop("dtypes", ALL), **options)


def with_axis(d, least=1, **sizes):
    shape = d.shape(least, **sizes)
    return shape, d.axis(len(shape))


def draw_slice(d):
    shape, axis = with_axis(d)
    size = shape[axis]
    begin = d.integer(0, size)
    end = d.integer(begin, size)
    if end < size and d.flag():
        begin, end = begin - size, end - size
    return [d.tensor(shape)], {"axis": axis, "begin": begin, "end": end}


def slice_of(x, axis, begin, end, step=1):
    entries = [slice(None)] * x.dim()
    entries[axis] = slice(begin, end, step)
    return x[tuple(entries)]


def draw_slice_step(d):
    shape, axis = with_axis(d)
    size = shape[axis]
    begin = d.integer(0, max(0, size - 1))
    return [d.tensor(shape)], {"axis": axis, "begin": begin, "end": None, "step": d.choice((1, 2, 3, -1, -2))}


def slice_step(x, axis, begin, end, step):
    if step > 0:
        return slice_of(x, axis, begin, end, step)
    if x.size(axis) == 0:
        return x
    return slice_of(x, axis, 0, begin + 1).flip(axis).contiguous()[
        (slice(None),) * (axis % x.dim()) + (slice(None, None, -step),)]


def draw_slice_scatter(d):
    shape, axis = with_axis(d, zero=0)
    begin = d.integer(0, shape[axis] - 1)
    end = d.integer(begin, shape[axis])
    step = d.integer(1, 3)
    values = list(shape)
    values[axis] = len(range(begin, end, step))
    return [d.tensor(shape), d.tensor(values)], {"axis": axis, "begin": begin, "end": end, "step": step}


def draw_roll(d):
    shape, axis = with_axis(d)
    return [d.tensor(shape)], {"shift": d.integer(-7, 7), "axis": axis}


def draw_pad(d):
    mode = d.choice(("constant", "reflect", "replicate", "circular"))
    if mode == "constant":
        shape = d.shape(1)
        count = d.integer(1, len(shape))
        sizes = shape[-count:]
        before = [d.integer(-(size // 2), 3) for size in sizes]
        after = [d.integer(-(size // 2), 3) for size in sizes]
    else:  # the ranks that PyTorch has these modes for
        count = d.integer(1, 3)
        shape = [d.integer(1, 5) for _ in range(count + 2)]
        most = [size - 1 if mode == "reflect" else size if mode == "circular" else 3 for size in shape[-count:]]
        before, after = ([d.integer(0, size) for size in most] for _ in range(2))
    return [d.tensor(shape)], {"before": before, "after": after, "mode": mode, "value": d.integer(0, 1)}


def pad(x, before, after, mode, value):
    flat = [number for pair in zip(reversed(before), reversed(after)) for number in pair]
    return F.pad(x, flat, mode, value) if mode == "constant" else F.pad(x, flat, mode)


def draw_tile(d):
    return [d.tensor(d.shape(0, 4))], {"repeats": [d.integer(0 if d.chance(0.1) else 1, 3) for _ in range(d.integer(1, 4))]}


def draw_repeat(d):
    shape, axis = with_axis(d)
    return [d.tensor(shape)], {"repeats": d.integer(0, 3), "axis": axis}


def draw_repeat_counts(d):
    shape, axis = with_axis(d)
    return [d.tensor(shape), d.integers([shape[axis]], 0, 3, torch.int64)], {"axis": axis}


def draw_parts(name, most):
    def draw(d):
        shape, axis = with_axis(d, zero=0)
        return [d.tensor(shape)], {name: d.integer(1, most), "axis": axis}

    return draw


def draw_sizes(d):
    sizes = [d.integer(0, 3) for _ in range(d.integer(1, 4))]
    shape, axis = with_axis(d)
    shape[axis] = sum(sizes)
    return [d.tensor(shape)], {"sizes": sizes, "axis": axis}


def draw_unbind(d):
    shape, axis = with_axis(d, zero=0)
    return [d.tensor(shape)], {"axis": axis}


def draw_broadcast_tensors(d):
    shape = d.shape()
    return [d.tensor(d.broadcast(shape)) for _ in range(d.integer(1, 3))] + [d.tensor(shape)], {}


def draw_meshgrid(d):
    count = d.integer(1, 4)
    return [d.tensor([d.size()]) for _ in range(count)], {"indexing": d.choice(("ij", "xy"))}


def draw_order(d):
    shape = d.shape(1)
    return [d.tensor(shape)], {"order": d.order(len(shape))}


def draw_movedim(d):
    shape = d.shape(1)
    count = d.integer(1, len(shape))
    return [d.tensor(shape)], {"from": d.order(len(shape))[:count], "to": d.order(len(shape))[:count]}


def draw_swap(d):
    shape = d.shape(1)
    return [d.tensor(shape)], {"first": d.axis(len(shape)), "second": d.axis(len(shape))}


def draw_unflatten(d):
    sizes = [d.integer(1, 3) for _ in range(d.integer(1, 3))]
    shape, axis = with_axis(d, zero=0)
    shape[axis] = torch.Size(sizes).numel()
    if d.flag():
        sizes[d.integer(0, len(sizes) - 1)] = -1
    return [d.tensor(shape)], {"axis": axis, "sizes": sizes}


def draw_unflatten_like(d):
    like = d.tensor([d.integer(1, 4) for _ in range(d.integer(1, 3))])
    axes = [d.axis(like.dim()) for _ in range(d.integer(1, 3))]
    shape, axis = with_axis(d, zero=0)
    shape[axis] = torch.Size([like.size(a) for a in axes]).numel()
    return [d.tensor(shape), like], {"axis": axis, "axes": axes}


def draw_flatten_axes(d):
    shape = d.shape(1)
    first = d.integer(0, len(shape) - 1)
    return [d.tensor(shape)], {"first": first, "last": d.integer(first, len(shape) - 1)}


def draw_reshape(d):
    shape = d.shape(zero=0)
    count = torch.Size(shape).numel()
    other = []
    while count > 1 and d.chance(0.8):
        factor = d.choice([f for f in range(1, count + 1) if count % f == 0][:6])
        other.append(factor)
        count //= factor
    return [d.tensor(shape)], {"shape": other + [d.choice((count, -1))]}


def draw_squeeze(d):
    shape = d.shape()
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    return [d.tensor(shape)], {"axes": ones[:d.integer(0, len(ones))]}


def squeeze(x, axes):
    return torch.squeeze(x, tuple(axes)) if axes else torch.squeeze(x)


def draw_unsqueeze(d):
    shape = d.shape(0, 4)
    return [d.tensor(shape)], {"axis": d.axis(len(shape) + 1)}


def draw_broadcast_to(d):
    shape = d.shape()
    return [d.tensor(d.broadcast(shape, 0.5))], {"shape": shape}


def draw_concat(d):
    shape, axis = with_axis(d)
    parts = []
    for _ in range(d.integer(1, 4)):
        part = list(shape)
        part[axis] = d.size(0.2)
        parts.append(d.tensor(part))
    return parts, {"axis": axis}


def draw_stack(d):
    shape = d.shape(0, 4)
    return [d.tensor(shape) for _ in range(d.integer(1, 4))], {"axis": d.axis(len(shape) + 1)}


def draw_diagonal(d):
    shape = d.shape(2)
    first, second = d.order(len(shape))[:2]
    return [d.tensor(shape)], {"offset": d.integer(-min(3, shape[first]), min(3, shape[second])), "axis1": first, "axis2": second}


def draw_offset(least, most, **sizes):
    def draw(d):
        return [d.tensor(d.shape(least, most, **sizes))], {"offset": d.integer(-3, 3)}

    return draw


def draw_diag(d):
    shape = [max(3, size) for size in d.shape(1, 2)]
    return [d.tensor(shape)], {"offset": d.integer(-3, 3)}


def draw_windows(d):
    shape, axis = with_axis(d, zero=0, long=False)
    return [d.tensor(shape)], {"axis": axis, "size": d.integer(1, shape[axis]), "step": d.integer(1, 3)}


def draw_unfold(d):
    kernel, stride, padding, dilation = ([d.integer(low, high) for _ in range(2)] for low, high in
                                         ((1, 3), (1, 3), (0, 2), (1, 2)))
    sizes = [dilation[i] * (kernel[i] - 1) + 1 + d.integer(0, 4) for i in range(2)]
    return sizes, {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def draw_unfold_case(d):
    sizes, options = draw_unfold(d)
    return [d.tensor([d.integer(1, 3), d.integer(1, 3)] + sizes)], options


def draw_fold_case(d):
    sizes, options = draw_unfold(d)
    count = 1
    for i in range(2):
        span = options["dilation"][i] * (options["kernel"][i] - 1) + 1
        count *= (sizes[i] + 2 * options["padding"][i] - span) // options["stride"][i] + 1
    rows = d.integer(1, 3) * options["kernel"][0] * options["kernel"][1]
    return [d.tensor([d.integer(1, 3), rows, count])], {"sizes": sizes, **options}


def draw_pixels(shuffle):
    def draw(d):
        factor = d.integer(1, 3)
        leading = d.shape(0, 2)
        c, h, w = (d.integer(1, 3) for _ in range(3))
        block = [c * factor ** 2, h, w] if shuffle else [c, h * factor, w * factor]
        return [d.tensor(leading + block)], {"factor": factor}

    return draw


def draw_channels(d):
    groups = d.integer(1, 3)
    return [d.tensor([d.integer(1, 3), groups * d.integer(1, 3)] + d.shape(1, 2, zero=0))], {"groups": groups}


OPERATIONS = [
    viewing("slice", draw_slice, slice_of),
    viewing("slice_step", draw_slice_step, slice_step, of="slice"),
    viewing("slice_scatter", draw_slice_scatter, lambda x, v, axis, begin, end, step: torch.slice_scatter(x, v, axis, begin, end, step)),
    viewing("flip", lambda d: (lambda s: ([d.tensor(s)], {"axes": d.axes(len(s))}))(d.shape()),
            lambda x, axes: torch.flip(x, axes or list(range(x.dim())))),
    viewing("roll", draw_roll, lambda x, shift, axis: torch.roll(x, shift, axis)),
    viewing("pad", draw_pad, pad),
    viewing("tile", draw_tile, lambda x, repeats: torch.tile(x, repeats)),
    viewing("repeat_interleave", draw_repeat, lambda x, repeats, axis: torch.repeat_interleave(x, repeats, axis)),
    viewing("repeat_interleave_counts", draw_repeat_counts, lambda x, counts, axis: torch.repeat_interleave(x, counts, axis),
            of="repeat_interleave"),
    viewing("split", draw_parts("size", 4), lambda x, size, axis: torch.split(x, size, axis)),
    viewing("split_sizes", draw_sizes, lambda x, sizes, axis: torch.split(x, sizes, axis), of="split"),
    viewing("chunk", draw_parts("parts", 4), lambda x, parts, axis: torch.chunk(x, parts, axis)),
    viewing("unbind", draw_unbind, lambda x, axis: torch.unbind(x, axis)),
    viewing("broadcast_tensors", draw_broadcast_tensors, lambda *x: torch.broadcast_tensors(*x)),
    viewing("meshgrid", draw_meshgrid, lambda *x, indexing: torch.meshgrid(*x, indexing=indexing)),
    viewing("permute", draw_order, lambda x, order: torch.permute(x, order)),
    viewing("transpose_order", draw_order, lambda x, order: torch.permute(x, order), of="transpose"),
    viewing("transpose", lambda d: ([d.tensor(d.shape(2))], {}), lambda x: x.mT),
    viewing("movedim", draw_movedim, lambda x, **a: torch.movedim(x, a["from"], a["to"])),
    viewing("swapaxes", draw_swap, lambda x, first, second: torch.swapaxes(x, first, second)),
    viewing("unflatten", draw_unflatten, lambda x, axis, sizes: torch.unflatten(x, axis, sizes)),
    viewing("atleast_1d", lambda d: ([d.tensor(d.shape())], {}), torch.atleast_1d),
    viewing("atleast_2d", lambda d: ([d.tensor(d.shape())], {}), torch.atleast_2d),
    viewing("atleast_3d", lambda d: ([d.tensor(d.shape())], {}), torch.atleast_3d),
    viewing("reshape", draw_reshape, lambda x, shape: torch.reshape(x, shape)),
    viewing("flatten", lambda d: (lambda s: ([d.tensor(s)], {"first": d.axis(len(s))}))(d.shape(1)),
            lambda x, first: torch.flatten(x, first)),
    viewing("flatten_axes", draw_flatten_axes, lambda x, first, last: torch.flatten(x, first, last), of="flatten"),
    viewing("unflatten_like", draw_unflatten_like, lambda x, like, axis, axes: torch.unflatten(x, axis, [like.size(a) for a in axes])),
    viewing("squeeze", draw_squeeze, squeeze),
    viewing("unsqueeze", draw_unsqueeze, lambda x, axis: torch.unsqueeze(x, axis)),
    viewing("broadcast_to", draw_broadcast_to, lambda x, shape: torch.broadcast_to(x, shape)),
    viewing("concat", draw_concat, lambda *x, axis: torch.cat(x, axis)),
    viewing("stack", draw_stack, lambda *x, axis: torch.stack(x, axis)),
    viewing("diagonal", draw_diagonal, lambda x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2)),
    viewing("trace", draw_diagonal, lambda x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).sum(-1, dtype=x.dtype),
            dtypes=NUMBERS),
    viewing("diag_embed", draw_offset(1, 4, long=False), lambda x, offset: torch.diag_embed(x, offset)),
    viewing("diag", draw_diag, lambda x, offset: torch.diag(x, offset)),
    viewing("tril", draw_offset(2, 5), lambda x, offset: torch.tril(x, offset)),
    viewing("triu", draw_offset(2, 5), lambda x, offset: torch.triu(x, offset)),
    viewing("sliding_windows", draw_windows, lambda x, axis, size, step: x.unfold(axis, size, step)),
    viewing("unfold", draw_unfold_case,
            lambda x, kernel, stride, padding, dilation: F.unfold(x, kernel, dilation, padding, stride), dtypes=REALS),
    viewing("fold", draw_fold_case,
            lambda x, sizes, kernel, stride, padding, dilation: F.fold(x, sizes, kernel, dilation, padding, stride),
            dtypes=REALS),
    viewing("pixel_shuffle", draw_pixels(True), lambda x, factor: F.pixel_shuffle(x, factor)),
    viewing("pixel_unshuffle", draw_pixels(False), lambda x, factor: F.pixel_unshuffle(x, factor)),
    viewing("channel_shuffle", draw_channels, lambda x, groups: torch.channel_shuffle(x, groups)),
]
