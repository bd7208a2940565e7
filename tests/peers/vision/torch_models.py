"""The models of nn/vision/ in PyTorch: torchvision's, and those that it does not have."""
import torch
import torchvision
from torch import nn


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = nn.functional.avg_pool2d(torch.tanh(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class UNet(nn.Module):
    def __init__(self, channels=3, classes=1, width=32, levels=4):
        super().__init__()
        self.levels = levels
        for level in range(1, levels + 1):
            self.add_module(f"encoder{level}", self.block(f"enc{level}", channels, width))
            channels, width = width, 2 * width
        self.bottleneck = self.block("bottleneck", channels, width)
        for level in range(levels, 0, -1):
            self.add_module(f"upconv{level}", nn.ConvTranspose2d(width, width // 2, 2, stride=2))
            self.add_module(f"decoder{level}", self.block(f"dec{level}", width, width // 2))
            width //= 2
        self.conv = nn.Conv2d(width, classes, 1)

    @staticmethod
    def block(name, channels, width):
        parts = nn.Sequential()
        for number in (1, 2):
            parts.add_module(f"{name}conv{number}", nn.Conv2d(channels, width, 3, padding=1, bias=False))
            parts.add_module(f"{name}norm{number}", nn.BatchNorm2d(width))
            parts.add_module(f"{name}relu{number}", nn.ReLU())
            channels = width
        return parts

    def forward(self, x):
        encoded = []
        for level in range(1, self.levels + 1):
            encoded.append(getattr(self, f"encoder{level}")(x))
            x = nn.functional.max_pool2d(encoded[-1], 2)
        x = self.bottleneck(x)
        for level in range(self.levels, 0, -1):
            x = torch.cat([getattr(self, f"upconv{level}")(x), encoded.pop()], 1)
            x = getattr(self, f"decoder{level}")(x)
        return self.conv(x)


def make(name):
    """A model without dropout: its draws are those of each library."""
    own = {"lenet5": LeNet5, "unet": UNet}
    if name in own:
        return own[name]()
    options = {"dropout": 0.0} if name.startswith(("vgg", "alexnet", "mobilenet")) else {}
    return torchvision.models.get_model(name, weights=None, **options)


MODELS = ["lenet5", "alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "vgg16_bn", "resnet18", "resnet34", "resnet50",
          "resnet101", "resnet152", "mobilenet_v2", "unet"]
