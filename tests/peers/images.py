"""Images in other sizes, and read at places between their elements."""
import torch
import torch.nn.functional as F

from convolutions import batch_of, draw_sizes, for_each, per_axis
from operation import Operation


def draw_interpolate(d):
    mode = d.choice(("nearest", "nearest-exact", "linear", "cubic"))
    axes = d.integer(1, 2 if mode == "cubic" else 3)  # PyTorch has no cubic volumes
    sizes = draw_sizes(d, [1] * axes)
    attributes = {"mode": mode}
    if mode in ("linear", "cubic"):
        attributes["align_corners"] = d.flag()
    if d.flag():
        attributes["size"] = per_axis(d, axes, 1, 9)
    else:  # the result has an element along each axis
        scales = [d.real(0.3, 3) for _ in range(1 if d.chance(0.3) else axes)]
        each = for_each(scales, axes)
        attributes["scale"] = scales if all(size * by >= 1 for size, by in zip(sizes, each)) else [2.0]
    return [d.tensor([batch_of(d), d.integer(1, 3)] + sizes)], attributes


def interpolate(x, mode, size=None, scale=None, align_corners=None):
    axes = x.dim() - 2
    size, scale = (numbers and for_each(numbers, axes) for numbers in (size, scale))
    flat = mode == "cubic" and axes == 1  # as an image of one row
    if flat:
        x, size, scale = x.unsqueeze(2), size and [1] + size, scale and [1.0] + scale
    mode = {"linear": ("linear", "bilinear", "trilinear")[axes - 1], "cubic": "bicubic"}.get(mode, mode)
    y = F.interpolate(x, size, scale, mode, align_corners)
    return y.squeeze(2) if flat else y


def draw_affine(d):
    axes = d.integer(2, 3)
    return [d.tensor([d.integer(1, 4), axes, axes + 1])], {"sizes": [d.integer(1, 6) for _ in range(axes)],
                                                          "align_corners": d.flag()}


def draw_sample(d):
    mode = d.choice(("linear", "nearest", "cubic"))
    axes, batch = 2 if mode == "cubic" else d.integer(1, 3), batch_of(d)  # PyTorch has cubic images only
    x = d.tensor([batch, d.integer(1, 3)] + draw_sizes(d, [1] * axes))
    points = [d.integer(1, 5) for _ in range(axes)]
    reach = d.choice((1.0, 1.5, 4.0))  # from within the image to far outside
    return [x, d.tensor([batch] + points + [axes], -reach, reach)], {
        "mode": mode, "padding": d.choice(("zeros", "border", "reflection")),
        "align_corners": d.flag()}


def grid_sample(x, grid, mode, padding, align_corners):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    if grid.size(-1) > 1:
        return F.grid_sample(x, grid, mode, padding, align_corners)
    row = torch.cat([grid, torch.zeros_like(grid)], -1).unsqueeze(1)  # of an image of one row
    return F.grid_sample(x.unsqueeze(2), row, mode, padding, align_corners).squeeze(2)


OPERATIONS = [
    Operation("interpolate", draw_interpolate, interpolate, loose=4),
    Operation("affine_grid", draw_affine, lambda theta, sizes, align_corners: F.affine_grid(
        theta, [len(theta), 1] + sizes, align_corners), loose=4),
    Operation("grid_sample", draw_sample, grid_sample, loose=4),
]
