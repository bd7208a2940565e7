"""The networks of ../../vision.cpp in a current PyTorch: vision.py CONTESTANT [batch] [rounds].

CONTESTANT is document, training, resnet18 or mobilenet, with _eager, _channels_last, _compiled (torch.compile of
channels last) or _autocast (bfloat16, channels last) behind it. Prints lines "name value", as the program in C++
does; OMP_NUM_THREADS sets the number of threads.
"""
import os
import statistics
import sys
import time

import torch
import torchvision
from torch import nn

DEEP = 30


def document():
    def block(before, channels):
        convolution = nn.Conv2d(before, channels, 3, padding=1)
        return [convolution, nn.BatchNorm2d(channels), nn.Tanh()]

    sizes = [1, 64] + [128] * DEEP + [512]
    parts = [part for before, after in zip(sizes, sizes[1:]) for part in block(before, after)]
    return nn.Sequential(*parts, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512 * 16, 1024), nn.Tanh(),
                         nn.Linear(1024, 10))


def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def training(net, x, wrap, autocast):
    y = torch.zeros(len(x), dtype=torch.int64)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    loss_of = wrap(lambda bx, by: nn.functional.cross_entropy(net(bx), by))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def inference(net, x, wrap, autocast):
    call = wrap(net.eval())

    def run():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            call(x)

    return run


def main():
    name = sys.argv[1]
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    network, how = name.split("_", 1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    make, work, shape = {
        "document": (document, training, [256, 1, 8, 8]),
        "training": (torchvision.models.resnet18, training, [16, 3, 64, 64]),
        "resnet18": (torchvision.models.resnet18, inference, [1, 3, 224, 224]),
        "mobilenet": (torchvision.models.mobilenet_v2, inference, [1, 3, 224, 224]),
    }[network]
    memory = torch.contiguous_format if how == "eager" else torch.channels_last
    x = torch.randn(batch or shape[0], *shape[1:]).to(memory_format=memory)
    wrap = torch.compile if how == "compiled" else lambda f: f
    run = work(make().to(memory_format=memory), x, wrap, how == "autocast")
    run()
    run()
    contestant = "pytorch" if how == "eager" else "pytorch_" + how
    wall, processor = [], []
    for _ in range(rounds):
        start, own = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - own)
    for unit, value in (("ms", statistics.median(wall) * 1e3),
                        ("processor_ms", statistics.median(processor) * 1e3), ("peak_mb", peak_megabytes())):
        print(f"{'_'.join(['vision', network, contestant, unit]):<44} {value:12.3f}")


main()
