#!/usr/bin/env python3
"""Writes transforms.h: what torchvision's functions of images compute.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy
    venv/bin/python tests/figures/transforms.py > tests/figures/transforms.h
"""
import torch
import torchvision.transforms.v2.functional as F
from torchvision.transforms import InterpolationMode


def image(shape):
    """As dyadic() in transforms_test.cpp, from 0 to 1."""
    count = torch.Size(shape).numel()
    return torch.tensor([((37 * i) % 53) / 64 for i in range(count)]).reshape(shape)


def row(t):
    return "{" + ", ".join(f"{x:.7g}" for x in t.flatten().tolist()) + "}"


def list_of(t):
    return "{" + ", ".join(str(x) for x in t.shape) + "}"


def show(name, x, y, numbers):
    assert y.dtype in (torch.float32, torch.uint8)
    print(f'    {{"{name}", {str(x.dtype == torch.uint8).lower()}, {list_of(x)}, {row(torch.tensor(numbers, dtype=torch.float64))}, '
          f"{list_of(y)}, {row(y)}}},")


def bytes_of(shape):
    return (image(shape) * 256).to(torch.uint8)


def rotated(x, degrees, mode, fill):
    # torchvision weights border pixels twice where it fills; moving the values by the fill, and back, does not.
    return F.rotate(x - fill, degrees, interpolation=mode) + fill


def figures():
    for size in ([3, 4], [7, 5], [2, 9], [1, 1], [13, 11]):
        for antialias in (0, 1):
            for x in (image([2, 6, 7]), bytes_of([1, 6, 7])):
                show("resize", x, F.resize(x, size, antialias=bool(antialias)), size + [antialias])
    for shorter in (3, 10):
        x = image([1, 6, 9])
        show("Resize", x, F.resize(x, [shorter], antialias=True), [shorter])
    for x in (image([2, 5, 7]), bytes_of([2, 5, 7]), image([1, 6, 6])):
        show("flip_horizontally", x, F.horizontal_flip(x), [])
        show("flip_vertically", x, F.vertical_flip(x), [])
        show("crop", x, F.crop(x, 1, 2, 3, 4), [1, 2, 3, 4])
        show("CenterCrop", x, F.center_crop(x, [4, 3]), [4, 3])
        show("pad", x, F.pad(x, [2], fill=0.0), [2, 0])
        show("pad", x, F.pad(x, [1], fill=1.0), [1, 1])
    for degrees in (0, 10, -25, 45, 77.5, 90, 180, -90, 200):
        for fill in (0.0, 0.25):
            x = image([2, 5, 7])
            show("rotate", x, rotated(x, degrees, InterpolationMode.BILINEAR, fill), [degrees, 1, fill])
            show("rotate", x, rotated(x, degrees, InterpolationMode.NEAREST, fill), [degrees, 0, fill])
    for x in (image([3, 3, 4]), image([1, 2, 3]), image([3, 2, 7])):
        for factor in (0, 0.4, 1, 1.7):
            show("adjust_brightness", x, F.adjust_brightness(x, factor), [factor])
            show("adjust_contrast", x, F.adjust_contrast(x, factor), [factor])
            show("adjust_saturation", x, F.adjust_saturation(x, factor), [factor])
        for turns in (-0.5, -0.3, -0.05, 0, 0.1, 0.25, 0.5):
            show("adjust_hue", x, F.adjust_hue(x, turns), [turns])
        show("grayscale", x, F.rgb_to_grayscale(x, 1), [1])
        show("grayscale", x, F.rgb_to_grayscale(x, 3), [3])
    for x in (bytes_of([3, 3, 4]),):
        show("adjust_brightness", x, F.adjust_brightness(x, 1.5), [1.5])
        show("adjust_hue", x, F.adjust_hue(x, 0.2), [0.2])
        show("ToFloat", x, F.to_dtype(x, torch.float32, scale=True), [])
        show("erase", x, F.erase(x, 1, 2, 2, 1, torch.tensor(9, dtype=torch.uint8)), [1, 2, 2, 1, 9])
    x = image([3, 2, 3])
    show("Normalize", x, F.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.25, 0.5]), [0.5, 0.4, 0.3, 0.2, 0.25, 0.5])


print("""// Written by transforms.py: torchvision's figures.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::testing {

struct TransformFigures {
  std::string name;
  bool bytes;  // uint8, not float32
  std::vector<int64_t> image;
  std::vector<double> numbers;
  std::vector<int64_t> result;
  std::vector<float> values;
};

// clang-format off
inline const std::vector<TransformFigures> transform_figures = {""")
figures()
print("""};
// clang-format on

}  // namespace espalier::testing""")
