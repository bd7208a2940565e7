"""Normalization layers: by statistics of a batch, of groups of channels and of rows, and by running ones."""
import torch
import torch.nn.functional as F

from convolutions import batch_of, draw_sizes
from draw import REALS
from operation import Operation

EPSILONS = (1e-5, 1e-3)


def parameters_of(d, channels):
    return [d.tensor([channels], -2, 2), d.tensor([channels], -2, 2)] if d.flag() else []


def draw_channels(d, batch, sizes):
    channels = d.choice((8, 17)) if d.chance(0.1) else d.integer(1, 5)
    return [d.tensor([batch, channels] + sizes)] + parameters_of(d, channels), {"epsilon": d.choice(EPSILONS)}


def draw_batch(d):
    """Channels of several elements."""
    sizes = draw_sizes(d, [1] * d.integer(0, 3))
    return draw_channels(d, d.integer(1 if max(sizes, default=1) > 1 else 2, 5), sizes)


def draw_examples(d):
    """Channels of which each example has several elements."""
    sizes = draw_sizes(d, [2] + [1] * d.integer(0, 2))
    return draw_channels(d, d.integer(1, 4), d.random.sample(sizes, len(sizes)))


def draw_groups(d):
    inputs, attributes = draw_channels(d, batch_of(d), draw_sizes(d, [1] * d.integer(0, 3)))
    channels = inputs[0].size(1)
    return inputs, {**attributes, "groups": d.choice([n for n in range(1, channels + 1) if channels % n == 0])}


def draw_rows(d):
    shape = d.shape(1, zero=0)
    return [d.tensor(shape), d.tensor(shape[-1:])], {"epsilon": d.choice(EPSILONS)}


def with_statistics(draw, training):
    def drawn(d):
        inputs, attributes = draw(d)
        count = inputs[0].size(1)
        attributes.update(training=training, running_mean=[d.real(-2, 2) for _ in range(count)],
                          running_var=[d.real(0.25, 4) for _ in range(count)])
        if d.chance(0.7):
            attributes["momentum"] = d.choice((0.0, 0.1, 0.5, 1.0))
        return inputs, attributes

    return drawn


def batch_norm_of_rows(x, mean, variance, weight, bias, *options):
    """PyTorch's gradients take cotangents and weights to have the layout of x, whatever theirs is."""
    weight = weight if weight is None else weight.contiguous()
    return F.batch_norm(x.contiguous(), mean, variance, weight, bias, *options)


def batch_norm(x, weight=None, bias=None, *, epsilon):
    return batch_norm_of_rows(x, None, None, weight, bias, True, 0, epsilon)


def group_norm(x, weight=None, bias=None, *, epsilon, groups):
    return F.group_norm(x, groups, weight, bias, epsilon)


def instance_norm(x, weight=None, bias=None, *, epsilon):
    return F.instance_norm(x, None, None, weight, bias, True, 0, epsilon)


def by_statistics(function):
    """Without momentum they become those of the first batch."""
    def run(x, weight=None, bias=None, *, epsilon, training, running_mean, running_var, momentum=1.0):
        mean, variance = (torch.tensor(numbers, dtype=x.dtype) for numbers in (running_mean, running_var))
        y = function(x, mean, variance, weight, bias, training, momentum, epsilon)
        return [y, mean, variance] if training else y

    return run


OPERATIONS = [
    Operation("batch_norm", draw_batch, batch_norm, loose=4, layer=True),
    Operation("group_norm", draw_groups, group_norm, loose=4, layer=True),
    Operation("instance_norm", draw_examples, instance_norm, loose=4, layer=True),
    Operation("rms_norm", draw_rows, lambda x, weight, epsilon: F.rms_norm(x, weight.shape, weight, epsilon), loose=4, layer=True),
    Operation("batch_norm_running", with_statistics(draw_batch, False), by_statistics(batch_norm_of_rows), loose=4, layer=True),
    Operation("instance_norm_running", with_statistics(draw_examples, False), by_statistics(F.instance_norm), loose=4, layer=True),
    # Plans of inference leave the statistics as they are.
    Operation("batch_norm_training", with_statistics(draw_batch, True), by_statistics(batch_norm_of_rows), loose=4, layer=True, plans=0),
    Operation("instance_norm_training", with_statistics(draw_examples, True), by_statistics(F.instance_norm), loose=4, layer=True,
              plans=0),
]
