"""The networks of ../../vision.cpp in NNabla: vision.py CONTESTANT [batch] [rounds].

CONTESTANT is document, training, resnet18 or mobilenet, with _static (one graph that is run again) or _dynamic (a
graph for each run) behind it. NNabla 1.39 wants Python 3.10 or older (pip install nnabla==1.39.0). Prints lines "name
value", as the program in C++ does.
"""
import statistics
import sys
import time

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

DEEP = 30


class Layers:
    """Layers by number, as they are written."""

    def __init__(self, training):
        self.training, self.count = training, 0

    def scope(self):
        self.count += 1
        return nn.parameter_scope(f"layer{self.count}")

    def convolution(self, x, channels, kernel, stride=1, groups=1, bias=False):
        """A convolution and its batch normalization."""
        with self.scope():
            y = PF.convolution(x, channels, (kernel, kernel), (kernel // 2, kernel // 2), (stride, stride), group=groups,
                               with_bias=bias)
            return PF.batch_normalization(y, batch_stat=self.training)

    def affine(self, x, width):
        with self.scope():
            return PF.affine(x, width)


def document(x, layers):
    for channels in [64] + [128] * DEEP + [512]:
        x = F.tanh(layers.convolution(x, channels, 3, bias=True))
    x = F.tanh(layers.affine(F.average_pooling(x, (2, 2)), 1024))
    return layers.affine(x, 10)


def resnet18(x, layers):
    x = F.max_pooling(F.relu(layers.convolution(x, 64, 7, 2), True), (3, 3), (2, 2), pad=(1, 1), ignore_border=False)
    for channels in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and channels > 64 else 1
            y = layers.convolution(F.relu(layers.convolution(x, channels, 3, stride), True), channels, 3)
            if x.shape[1] != channels:
                x = layers.convolution(x, channels, 1, stride)
            x = F.relu(F.add2(y, x), True)
    return layers.affine(F.global_average_pooling(x), 1000)


def mobilenet(x, layers):
    x = F.relu6(layers.convolution(x, 32, 3, 2))
    for expansion, channels, blocks, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                               (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            stride, wide, y = first if block == 0 else 1, x.shape[1] * expansion, x
            if expansion > 1:
                y = F.relu6(layers.convolution(y, wide, 1))
            y = layers.convolution(F.relu6(layers.convolution(y, wide, 3, stride, wide)), channels, 1)
            x = F.add2(y, x) if stride == 1 and x.shape[1] == channels else y
    return layers.affine(F.global_average_pooling(F.relu6(layers.convolution(x, 1280, 1))), 1000)


def training(network, images):
    solver = S.Adam(1e-3)

    def loss_of():
        x, y = nn.Variable.from_numpy_array(images), nn.Variable.from_numpy_array(np.zeros((len(images), 1)))
        return F.mean(F.softmax_cross_entropy(network(x, Layers(True)), y))

    static = loss_of()
    solver.set_parameters(nn.get_parameters())

    def step(dynamic):
        loss = loss_of() if dynamic else static
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
        float(loss.d)

    return step


def inference(network, images):
    def output():
        return network(nn.Variable.from_numpy_array(images), Layers(False))

    static = output()

    def run(dynamic):
        y = output() if dynamic else static
        y.forward(clear_buffer=True)
        y.d.sum()

    return run


def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    network, _, kind = name.partition("_")
    networks = {
        "document": (document, training, [256, 1, 8, 8]),
        "training": (resnet18, training, [16, 3, 64, 64]),
        "resnet18": (resnet18, inference, [1, 3, 224, 224]),
        "mobilenet": (mobilenet, inference, [1, 3, 224, 224]),
    }
    if network not in networks or kind not in ("static", "dynamic"):
        sys.exit("usage: vision.py document|training|resnet18|mobilenet_static|dynamic [batch] [rounds]")
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    nn.set_auto_forward(kind == "dynamic")
    make, work, shape = networks[network]
    run = work(make, np.random.randn(batch or shape[0], *shape[1:]).astype(np.float32))
    run(kind == "dynamic")
    wall, processor = [], []
    for _ in range(rounds):
        start = time.perf_counter(), time.process_time()
        run(kind == "dynamic")
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    for unit, value in (("ms", statistics.median(wall) * 1e3),
                        ("processor_ms", statistics.median(processor) * 1e3), ("peak_mb", peak_megabytes())):
        print(f"{'_'.join(['vision', network, 'nnabla', kind, unit]):<44} {value:12.3f}")


main()
