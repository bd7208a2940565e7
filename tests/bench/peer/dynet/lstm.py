#!/usr/bin/env python3
"""lstm.py [rounds]: the LSTM of ../../lstm.cpp in DyNet, for the package dynet38, with the sequences as DyNet's
minibatch; its gates have one bias where the others' have two. The inputs are rows of a table that is not trained,
as DyNet copies these fastest from Python. Prints training steps a second."""
import statistics
import sys
import time

import dynet as dy
import numpy as np

STEPS, BATCH, IN, HIDDEN, EACH = 50, 32, 128, 256, 10


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 5
    model = dy.ParameterCollection()
    net, trainer = dy.VanillaLSTMBuilder(1, IN, HIDDEN, model), dy.SimpleSGDTrainer(model, 0.01)
    trainer.set_clip_threshold(0)
    inputs = model.add_lookup_parameters((STEPS * BATCH, IN))
    inputs.init_from_array(np.random.default_rng(1).standard_normal((STEPS * BATCH, IN)))
    steps = [list(range(step * BATCH, (step + 1) * BATCH)) for step in range(STEPS)]

    def work():
        for _ in range(EACH):
            dy.renew_cg()
            x = [dy.lookup_batch(inputs, rows, update=False) for rows in steps]
            outputs = net.initial_state().transduce(x)
            squares = dy.esum([dy.squared_norm(h) for h in outputs])
            loss = dy.sum_batches(squares) / (STEPS * BATCH * HIDDEN)
            loss.value()
            loss.backward()
            trainer.update()

    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    print(f"{'lstm_dynet_steps_per_s':<36} {EACH / statistics.median(times):12.3f}")


if __name__ == "__main__":
    main()
