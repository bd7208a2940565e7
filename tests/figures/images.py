#!/usr/bin/env python3
"""Writes images.h: what PyTorch's grid_sample, affine_grid and interpolate compute in float64, with gradients.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/figures/images.py > tests/figures/images.h
"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def numbers(shape, a, b, size):
    """As dyadic() in image_sampling_test.cpp."""
    count = torch.Size(shape).numel()
    values = [((a * i) % b - b // 2) / size for i in range(count)]
    return torch.tensor(values).reshape(shape).requires_grad_()


def row(t):
    return "{" + ", ".join(repr(x) for x in t.detach().flatten().tolist()) + "}"


def list_of(t):
    return "{" + ", ".join(str(x) for x in t.shape) + "}"


def weighted(y):
    """A sum of all elements, each with a factor of its own."""
    return (y * numbers(list(y.shape), 29, 31, 16).detach()).sum()


def grid_samples():
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                for x_shape, grid_shape in (([2, 2, 3, 4], [2, 2, 3, 2]), ([1, 2, 2, 3, 2], [1, 2, 1, 2, 3])):
                    if mode == "bicubic" and len(x_shape) > 4:
                        continue  # PyTorch has it for images alone
                    x = numbers(x_shape, 37, 53, 16)
                    grid = numbers(grid_shape, 17, 53, 16)  # up to 26/16: some points are outside
                    y = F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)
                    of_x, of_grid = torch.autograd.grad(weighted(y), (x, grid), allow_unused=True)
                    name = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
                    print(f"    {{esp::SampleMode::{name}, "
                          f"esp::SamplePadding::{padding}, {str(corners).lower()}, {list_of(x)}, {list_of(grid)}, "
                          f"{list_of(y)}, {row(y)}, {row(of_x)}, {row(of_grid)}}},")


def affine_grids():
    for sizes in ([2, 3], [1, 4], [2, 1, 3]):
        for corners in (False, True):
            k = len(sizes)
            theta = numbers([2, k, k + 1], 13, 23, 8)
            y = F.affine_grid(theta, [2, 1] + sizes, align_corners=corners)
            of_theta, = torch.autograd.grad(weighted(y), theta)
            print(f"    {{{str(corners).lower()}, {{{', '.join(map(str, sizes))}}}, {row(y)}, {row(of_theta)}}},")


def interpolations():
    cases = []
    for corners in (False, True):
        for sizes in ([5, 7], [2, 2], [3, 4], [1, 9]):
            cases.append(("bilinear", [2, 1, 3, 4], sizes, None, corners))
            cases.append(("bicubic", [2, 1, 3, 4], sizes, None, corners))
        cases.append(("linear", [1, 2, 5], [8], None, corners))
        cases.append(("trilinear", [1, 1, 2, 3, 2], [3, 2, 4], None, corners))
    for mode in ("nearest", "nearest-exact"):
        cases += [(mode, [2, 1, 3, 4], [5, 7], None, None), (mode, [2, 1, 3, 4], [2, 3], None, None),
                  (mode, [1, 1, 7], None, [1.5], None), (mode, [1, 1, 2, 3, 2], [4, 2, 3], None, None)]
    cases += [("bilinear", [1, 1, 3, 4], None, [1.7, 0.6], False), ("bicubic", [1, 1, 3, 4], None, [2.5, 1.3], False),
              ("bilinear", [1, 1, 3, 4], None, [1.7, 0.6], True)]
    names = {"nearest": "nearest", "nearest-exact": "nearest_exact", "bicubic": "cubic"}
    for mode, shape, size, scale, corners in cases:
        x = numbers(shape, 37, 53, 16)
        y = F.interpolate(x, size=size, scale_factor=scale, mode=mode, align_corners=corners)
        of_x, = torch.autograd.grad(weighted(y), x)
        print(f"    {{esp::Interpolation::{names.get(mode, 'linear')}, {str(bool(corners)).lower()}, {list_of(x)}, "
              f"{{{', '.join(map(str, size or []))}}}, {{{', '.join(map(str, scale or []))}}}, {list_of(y)}, "
              f"{row(y)}, {row(of_x)}}},")


print("""// Written by images.py: PyTorch's figures.
#pragma once
#include <vector>

#include "espalier/ops/functions/grid_sample.h"
#include "espalier/ops/functions/interpolate.h"

namespace espalier::testing {

namespace esp = espalier;
using Doubles = std::vector<double>;
using Sizes = std::vector<int64_t>;

struct GridSampleFigures {
  esp::SampleMode mode;
  esp::SamplePadding padding;
  bool align_corners;
  Sizes x, grid, result;
  Doubles values, of_x, of_grid;
};
struct AffineGridFigures {
  bool align_corners;
  Sizes sizes;
  Doubles values, of_theta;
};
struct InterpolateFigures {
  esp::Interpolation mode;
  bool align_corners;
  Sizes x, size;
  Doubles scale;
  Sizes result;
  Doubles values, of_x;
};

// clang-format off
inline const std::vector<GridSampleFigures> grid_sample_figures = {""")
grid_samples()
print("};\ninline const std::vector<AffineGridFigures> affine_grid_figures = {")
affine_grids()
print("};\ninline const std::vector<InterpolateFigures> interpolate_figures = {")
interpolations()
print("""};
// clang-format on

}  // namespace espalier::testing""")
