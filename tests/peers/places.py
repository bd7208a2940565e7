"""Elements at places along several axes, at strides, and in reverse order."""
import torch

from draw import ALL, NUMBERS
from operation import Operation


def draw_places(d):
    """Several may be the same."""
    shape = [max(1, size) for size in d.shape(1, 4)]
    count, leading, dtype = d.integer(1, len(shape)), d.shape(0, 2, long=False), d.choice((torch.int32, torch.int64))
    indices = [d.integers(leading, -size, size - 1, dtype) for size in shape[:count]]
    return shape, torch.stack(indices, -1)


def draw_other_places(d):
    """No two are the same."""
    shape = d.shape(1, 4, zero=0)
    count = d.integer(1, len(shape))
    all_places = torch.Size(shape[:count]).numel()
    flat = torch.randperm(all_places, generator=d.generator)[:d.integer(1, min(all_places, 8))]
    indices = torch.stack(torch.unravel_index(flat, shape[:count]), -1)
    if d.flag():
        indices = indices - torch.tensor(shape[:count])
    if len(flat) % 2 == 0 and d.flag():
        indices = indices.reshape(2, -1, count)
    return shape, indices.to(d.choice((torch.int32, torch.int64)))


def draw_scatter(places):
    def draw(d):
        shape, indices = places(d)
        values = list(indices.shape[:-1]) + shape[indices.size(-1):]
        return [d.tensor(shape), indices, d.tensor(d.broadcast(values))], {}

    return draw


def draw_gather(d):
    shape, indices = draw_places(d)
    return [d.tensor(shape), indices], {}


def along_each(x, indices):
    return tuple(indices[..., axis].long() % x.size(axis) for axis in range(indices.size(-1)))


def scatter(x, indices, values, accumulate):
    places = list(indices.shape[:-1]) + list(x.shape[indices.size(-1):])
    return x.index_put(along_each(x, indices), values.expand(places), accumulate)


def draw_strided(d):
    shape = d.shape(1, zero=0)
    last = torch.Size(shape).numel() - 1
    low, high, strides, result = 0, 0, [], d.shape(0, 4)
    for size in result:
        stride = d.integer(-3, 5)
        reach = stride * max(0, size - 1)
        if high - low + abs(reach) > last:
            stride = reach = 0
        strides.append(stride)
        low, high = low + min(0, reach), high + max(0, reach)
    return [d.tensor(shape)], {"shape": result, "strides": strides, "offset": d.integer(-low, last - high)}


def as_strided(x, shape, strides, offset):
    """By indices where PyTorch has no such strides."""
    if min(strides, default=0) >= 0:
        return torch.as_strided(x.clone(memory_format=torch.contiguous_format), shape, strides, offset)
    places = torch.tensor(offset)
    for size, stride in zip(shape, strides):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return x.reshape(-1)[places]


def draw_sequences(d):
    shape = d.shape(2)
    time, batch = d.order(len(shape))[:2]
    lengths = d.integers([shape[batch]], 0, shape[time])
    if d.flag():
        time -= len(shape)
    return [d.tensor(shape), lengths], {"time_axis": time, "batch_axis": batch}


def reverse_sequence(x, lengths, time_axis, batch_axis):
    rows = x.movedim((time_axis, batch_axis), (0, 1))
    at = torch.arange(rows.size(0)).unsqueeze(1)
    at = torch.where(at < lengths, lengths.long() - 1 - at, at)
    return rows[at, torch.arange(rows.size(1))].movedim((0, 1), (time_axis, batch_axis))


OPERATIONS = [
    Operation("gather_nd", draw_gather, lambda x, indices: x[along_each(x, indices)], ALL),
    Operation("scatter_nd", draw_scatter(draw_other_places), lambda x, i, v: scatter(x, i, v, False), ALL),
    Operation("scatter_nd_add", draw_scatter(draw_places), lambda x, i, v: scatter(x, i, v, True), NUMBERS),
    Operation("as_strided", draw_strided, as_strided, ALL),
    Operation("reverse_sequence", draw_sequences, reverse_sequence, ALL),
]
