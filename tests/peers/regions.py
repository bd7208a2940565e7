"""Regions of images, and the best of boxes that overlap."""
import torch
import torchvision.ops

from convolutions import draw_sizes, for_each
from draw import INTEGERS
from operation import Operation

SINGLES = (torch.float32, torch.float64)


def draw_boxes(d, count, sizes, reach=2.0):
    """Two corners, some of them outside of the image."""
    height, width = sizes
    low = d.tensor([count, 2], -reach, max(height, width) + reach, special=False)
    size = d.tensor([count, 2], 0.25, max(height, width), special=False)
    return torch.cat([low, low + size], 1)


def draw_regions(d):
    sizes, images, count = draw_sizes(d, [1, 1]), d.integer(1, 3), d.integer(0, 5)
    x = d.tensor([images, d.integer(1, 3)] + sizes)
    numbers = d.integers([count, 1], 0, images - 1).to(d.dtype)
    size = [d.integer(1, 4) for _ in range(1 if d.chance(0.3) else 2)]
    return x, torch.cat([numbers, draw_boxes(d, count, sizes)], 1), {"size": size, "scale": d.choice((1.0, 0.5, 1.25))}


def draw_align(d):
    x, boxes, attributes = draw_regions(d)
    return [x, boxes], {**attributes, "samples": d.choice((0, 1, 2, 3)), "aligned": d.flag()}


def draw_pool(d):
    x, boxes, attributes = draw_regions(d)
    return [x, boxes], attributes


def roi_align(x, boxes, size, scale, samples, aligned):
    return torchvision.ops.roi_align(x, boxes.detach(), for_each(size, 2), scale, samples or -1, aligned)


def roi_pool(x, boxes, size, scale):
    return torchvision.ops.roi_pool(x, boxes.detach(), for_each(size, 2), scale)


def draw_nms(d):
    count = d.integer(0, 12)
    return [draw_boxes(d, count, [3, 3]), d.distinct([count])], {"threshold": d.real(0, 1)}


def draw_batched(d):
    (boxes, scores), attributes = draw_nms(d)
    return [boxes, scores, d.integers([len(boxes)], 0, 2, d.choice(INTEGERS))], attributes


def batched_nms(boxes, scores, classes, threshold):
    boxes, scores, kept = boxes.detach(), scores.detach(), []
    for number in classes.unique():  # torchvision's moves boxes apart, which rounds them
        own = (classes == number).nonzero().squeeze(1)
        kept.append(own[torchvision.ops.nms(boxes[own], scores[own], threshold)])
    kept = torch.cat(kept) if kept else torch.zeros(0, dtype=torch.int64)
    return kept[scores[kept].argsort(descending=True)]


def draw_suppression(d):
    images, classes, count = d.integer(1, 2), d.integer(1, 3), d.integer(0, 8)
    boxes = torch.stack([draw_boxes(d, count, [3, 3]) for _ in range(images)])
    attributes = {"threshold": d.real(0, 1)}
    if d.flag():
        attributes["most"] = d.integer(0, 3)
    if d.flag():
        attributes["least_score"] = d.real(-2, 2)
    return [boxes, d.distinct([images, classes, count])], attributes


def non_max_suppression(boxes, scores, threshold, most=None, least_score=None):
    rows = []
    for image, (own, ranks) in enumerate(zip(boxes.detach(), scores.detach())):
        for number, rank in enumerate(ranks):
            left = (rank > (-float("inf") if least_score is None else least_score)).nonzero().squeeze(1)
            kept = left[torchvision.ops.nms(own[left], rank[left], threshold)][:most]
            rows += [[image, number, box] for box in kept.tolist()]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


OPERATIONS = [
    Operation("roi_align", draw_align, roi_align, SINGLES, loose=4, constant=(1,)),
    Operation("roi_pool", draw_pool, roi_pool, SINGLES, constant=(1,)),
    Operation("nms", draw_nms, lambda boxes, scores, threshold: torchvision.ops.nms(
        boxes.detach(), scores.detach(), threshold), SINGLES),
    Operation("batched_nms", draw_batched, batched_nms, SINGLES),
    Operation("non_max_suppression", draw_suppression, non_max_suppression, SINGLES),
]
