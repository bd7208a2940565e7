"""The workloads in a current PyTorch: bench.py CONTESTANT [rounds], one contestant in a process.

CONTESTANT is mlp, inference, pointwise_forward, pointwise_backward or gpt, each also with "_compiled" behind it:
then torch.compile has made one function of it; or with "_autocast", to bfloat16. Prints lines "name value", as the programs in C++ do.
"""
import logging
import os
import statistics
import sys
import time

import torch
from torch import nn

from tasks import GPT, MLP, Block, expression, mlp_net

ELEMENTS = 1 << 24


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_seconds(runs, work):
    work()  # the first runs warm caches and the allocator, and compile
    work()
    return statistics.median(seconds(work) for _ in range(runs))


def report(name, value):
    print(f"{name:<36} {value:12.3f}")


def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def training(net, x, y, batch, optimizer, wrap):
    """One epoch over shuffled batches."""
    loss_function = nn.MSELoss()
    loss_of = wrap(lambda bx, by: loss_function(net(bx), by))

    def epoch():
        order = torch.randperm(len(x))
        for begin in range(0, len(x) - batch + 1, batch):
            rows = order[begin : begin + batch]
            bx, by = x.index_select(0, rows), y.index_select(0, rows)
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(bx, by)
            loss.backward()
            optimizer.step()
            loss.item()

    return epoch, len(x) // batch


def mlp(wrap):
    net = mlp_net()
    x, y = torch.randn(MLP.rows, MLP.inputs), torch.randn(MLP.rows, MLP.outputs)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3, fused=True)
    return training(net, x, y, MLP.batch, optimizer, wrap)


def gpt(wrap):
    net = Block()
    x = torch.randn(GPT.rows, GPT.tokens, GPT.width)
    y = torch.randn(GPT.rows, GPT.tokens, GPT.width)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    return training(net, x, y, GPT.batch, optimizer, wrap)


def inference(wrap):
    net, x = mlp_net().eval(), torch.randn(1, MLP.inputs)
    call = wrap(net)

    def run():
        with torch.inference_mode():
            for _ in range(1000):
                call(x)

    return run, 1000


def pointwise_forward(wrap):
    a, b, c = (torch.randn(ELEMENTS) for _ in range(3))
    function = wrap(expression)

    def run():
        with torch.inference_mode():
            function(a, b, c)

    return run, 1


def pointwise_backward(wrap):
    leaves = [torch.randn(ELEMENTS, requires_grad=True) for _ in range(3)]
    function = wrap(lambda *operands: expression(*operands).sum())

    def run():
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).backward()

    return run, 1


WORKLOADS = {
    "mlp": (mlp, "us", 1e6),
    "inference": (inference, "us", 1e6),
    "pointwise_forward": (pointwise_forward, "ms", 1e3),
    "pointwise_backward": (pointwise_backward, "ms", 1e3),
    "gpt": (gpt, "ms", 1e3),
}


def main():
    contestant = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    torch.manual_seed(1)
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it looks for CUDA
    name = contestant.removesuffix("_compiled").removesuffix("_autocast")
    make, unit, scale = WORKLOADS[name]
    wraps = {"_compiled": torch.compile, "_autocast": torch.autocast("cpu", torch.bfloat16), "": lambda function: function}
    run, steps = make(wraps[contestant[len(name) :]])
    label = f"{name}_pytorch{contestant[len(name):]}"
    report(f"{label}_{unit}", median_seconds(rounds, run) / steps * scale)
    report(f"{label}_mb", peak_megabytes())


if __name__ == "__main__":
    main()
