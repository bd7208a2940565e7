"""The attention of ../../attention.cpp in a current PyTorch: scaled_dot_product_attention.

attention.py TOKENS forward|backward [causal] [rounds]: in processor time, at one thread, and the memory
that the calls take beyond q, k and v.
Prints a line "name value", as the programs in C++ do.
"""
import resource
import statistics
import sys
import time

import torch

HEADS, WIDTH = 8, 64


def main():
    tokens, contestant, causal = int(sys.argv[1]), sys.argv[2], "causal" in sys.argv[3:]
    rounds = int(sys.argv[-1]) if len(sys.argv) > 3 and sys.argv[-1].isdigit() else 5
    torch.set_num_threads(1)
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, HEADS, tokens, WIDTH, requires_grad=contestant == "backward") for _ in range(3))
    g = torch.randn(1, HEADS, tokens, WIDTH)

    def call():
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if contestant == "backward":
            torch.autograd.grad(y, (q, k, v), g)

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before = peak()
    calls = min(400, max(1, (1 << 23) // (tokens * tokens)))
    call()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            call()
        times.append((time.process_time() - begin) / calls)
    name = f"attention_{tokens}_{contestant}" + ("_causal" if causal else "")
    print(f"{name}_ms {statistics.median(times) * 1e3:.3f}")
    print(f"{name}_mb {peak() - before:.3f}")


main()
