"""The workloads in MLX, on the CPU: bench.py CONTESTANT [rounds], one contestant in a process.

CONTESTANT is mlp, pointwise_forward or pointwise_backward; mlx.core.compile has made one function of each. Prints
lines "name value", as the programs in C++ do. The sizes are those of ../../mlp_task.h and ../../pointwise_task.h.
"""
import statistics
import sys
import time
from functools import partial

import mlx.core as mx
from mlx import nn, optimizers

ROWS, INPUTS, HIDDEN, OUTPUTS, BATCH = 16384, 100, 1000, 10, 256
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


def mlp():
    """One epoch over shuffled batches."""
    net = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS))
    x, y = mx.random.normal((ROWS, INPUTS)), mx.random.normal((ROWS, OUTPUTS))
    optimizer = optimizers.SGD(learning_rate=1e-3)
    state = [net.state, optimizer.state]
    mx.eval(state, x, y)
    loss_and_gradients = nn.value_and_grad(net, lambda bx, by: nn.losses.mse_loss(net(bx), by))

    @partial(mx.compile, inputs=state, outputs=state)
    def step(bx, by):
        loss, gradients = loss_and_gradients(bx, by)
        optimizer.update(net, gradients)
        return loss

    def epoch():
        order = mx.random.permutation(ROWS)
        for begin in range(0, ROWS - BATCH + 1, BATCH):
            rows = order[begin : begin + BATCH]
            loss = step(x[rows], y[rows])
            mx.eval(loss, state)
            loss.item()

    return epoch, ROWS // BATCH


def expression(a, b, c):
    return mx.tanh(a * b + c) * mx.sigmoid(a)


def leaves():
    arrays = [mx.random.normal((ELEMENTS,)) for _ in range(3)]
    mx.eval(arrays)
    return arrays


def pointwise_forward():
    arrays, function = leaves(), mx.compile(expression)
    return lambda: mx.eval(function(*arrays)), 1


def pointwise_backward():
    arrays = leaves()
    function = mx.compile(mx.value_and_grad(lambda *operands: expression(*operands).sum(), argnums=(0, 1, 2)))
    return lambda: mx.eval(function(*arrays)), 1


WORKLOADS = {
    "mlp": (mlp, "us", 1e6),
    "pointwise_forward": (pointwise_forward, "ms", 1e3),
    "pointwise_backward": (pointwise_backward, "ms", 1e3),
}


def main():
    name = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    mx.set_default_device(mx.cpu)
    mx.random.seed(1)
    make, unit, scale = WORKLOADS[name]
    run, steps = make()
    report(f"{name}_mlx_{unit}", median_seconds(rounds, run) / steps * scale)
    report(f"{name}_mlx_mb", peak_megabytes())


if __name__ == "__main__":
    main()
