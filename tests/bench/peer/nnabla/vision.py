"""A training step of the network of ../../vision.cpp in NNabla: document.py static|dynamic [batch] [rounds].

NNabla 1.39 wants Python 3.10 or older (pip install nnabla==1.39.0). Prints lines "name value", as the program in
C++ does.
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


def network(x):
    def block(h, channels, name):
        with nn.parameter_scope(name):
            return F.tanh(PF.batch_normalization(PF.convolution(h, channels, (3, 3), pad=(1, 1))))

    h = block(x, 64, "conv1")
    for i in range(DEEP):
        h = block(h, 128, f"conv{i + 2}")
    h = F.average_pooling(block(h, 512, "conv_last"), (2, 2))
    h = F.tanh(PF.affine(h, 1024, name="fc"))
    return PF.affine(h, 10, name="classifier")


def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in ("static", "dynamic"):
        sys.exit("usage: document.py static|dynamic [batch] [rounds]")
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    nn.set_auto_forward(kind == "dynamic")
    images = np.random.randn(batch, 1, 8, 8).astype(np.float32)
    solver = S.Adam(1e-3)

    def loss_of():
        x, y = nn.Variable.from_numpy_array(images), nn.Variable.from_numpy_array(np.zeros((batch, 1)))
        return F.mean(F.softmax_cross_entropy(network(x), y))

    loss = loss_of()
    solver.set_parameters(nn.get_parameters())

    def step():
        now = loss if kind == "static" else loss_of()
        now.forward(clear_no_need_grad=True)
        solver.zero_grad()
        now.backward(clear_buffer=True)
        solver.update()
        float(now.d)

    step()
    wall, processor = [], []
    for _ in range(rounds):
        start = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    name = f"vision_nnabla_document_{kind}"
    print(f"{name + '_ms':<36} {statistics.median(wall) * 1e3:12.3f}")
    print(f"{name + '_processor_ms':<36} {statistics.median(processor) * 1e3:12.3f}")
    print(f"{name + '_peak_mb':<36} {peak_megabytes():12.3f}")


main()
