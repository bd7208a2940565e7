"""The network of ../../convolutions.cpp in a current PyTorch: convolutions.py step|forward [rounds] [channels_last|contiguous].

In processor time, at one thread. Prints lines "name value", as the programs in C++ do.
"""
import statistics
import sys
import time

import torch
from torch import nn

BATCH, CHANNELS, MORE, CLASSES, STEPS = 256, 64, 12, 10, 4


def network():
    parts = []
    for i in range(MORE + 1):
        parts += [nn.Conv2d(CHANNELS if i else 1, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(CHANNELS * 16, CLASSES))


def main():
    contestant = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    layout = sys.argv[3] if len(sys.argv) > 3 else "channels_last"
    memory = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = network().to(memory_format=memory)
    x = torch.randn(BATCH * STEPS, 1, 8, 8).to(memory_format=memory)
    y = torch.zeros(BATCH * STEPS, dtype=torch.int64)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()
    if contestant == "forward":
        net.eval()

    def epoch():
        for begin in range(0, BATCH * STEPS, BATCH):
            part, labels = x[begin : begin + BATCH], y[begin : begin + BATCH]
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
    print(f"{'convolutions_' + contestant + '_' + layout + '_ms':<36} {statistics.median(times) * 1e3 / STEPS:12.3f}")


main()
