"""The networks of ../../convolutions.cpp in a current PyTorch.

convolutions.py deep|digits step|forward [rounds] [channels_last|contiguous]: in processor time, at one thread.
Prints a line "name value", as the programs in C++ do.
"""
import statistics
import sys
import time

import torch
from torch import nn

CHANNELS, MORE, CLASSES, STEPS = 64, 12, 10, 4


def deep():
    parts = []
    for i in range(MORE + 1):
        convolution = nn.Conv2d(CHANNELS if i else 1, CHANNELS, 3, padding=1, bias=False)
        parts += [convolution, nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(CHANNELS * 16, CLASSES))


def digits():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, CLASSES),
    )


def main():
    name, contestant = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    layout = sys.argv[4] if len(sys.argv) > 4 else "channels_last"
    make, batch, size = (deep, 256, 8) if name == "deep" else (digits, 64, 28)
    memory = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = make().to(memory_format=memory)
    x = torch.randn(batch * STEPS, 1, size, size).to(memory_format=memory)
    y = torch.zeros(batch * STEPS, dtype=torch.int64)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()
    if contestant == "forward":
        net.eval()

    def epoch():
        for begin in range(0, batch * STEPS, batch):
            part, labels = x[begin : begin + batch], y[begin : begin + batch]
            if contestant == "forward":
                with torch.inference_mode():
                    net(part).mean().item()
                continue
            optimizer.zero_grad(set_to_none=True)
            loss = loss_function(net(part), labels)
            loss.backward()
            optimizer.step()
            loss.item()

    epoch()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        epoch()
        times.append(time.process_time() - start)
    label = f"convolutions_{name}_{contestant}_{layout}_ms"
    print(f"{label:<36} {statistics.median(times) * 1e3 / STEPS:12.3f}")


main()
