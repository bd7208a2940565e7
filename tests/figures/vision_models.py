#!/usr/bin/env python3
"""Writes vision_models.txt: the names and shapes of the parameters and buffers of PyTorch's models, in the order of theirs.

    python3 -m venv venv && venv/bin/pip install torch torchvision
    venv/bin/python tests/figures/vision_models.py > tests/figures/vision_models.txt

Behind the name of a model there is a line for each of its tensors: the name and the sizes.
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "peers" / "vision"))
import torch_models

for model in ("lenet5", "alexnet", "vgg16", "resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2", "unet"):
    with torch.device("meta"):
        state = torch_models.make(model).state_dict()
    print("model", model)
    for name, tensor in state.items():
        print(name, *tensor.shape)
