"""Training an LSTM on 50 steps of 32 sequences in a current PyTorch, as ../../lstm.cpp does: lstm.py [rounds]."""
import os
import statistics
import sys
import time

import torch

STEPS, BATCH, IN, HIDDEN, EACH = 50, 32, 128, 256, 10

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(1)
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
x = torch.randn(STEPS, BATCH, IN)
net = torch.nn.LSTM(IN, HIDDEN)
sgd = torch.optim.SGD(net.parameters(), lr=0.01)


def work():
    for _ in range(EACH):
        sgd.zero_grad(set_to_none=True)
        outputs, _ = net(x)
        loss = outputs.square().mean()
        loss.backward()
        sgd.step()
        loss.item()


work()
times = []
for _ in range(rounds):
    start = time.perf_counter()
    work()
    times.append(time.perf_counter() - start)
print(f"{'lstm_pytorch_steps_per_s':<36} {EACH / statistics.median(times):12.3f}")
