"""The files of ../../onnx.cpp in onnxruntime: bench.py FOLDER [rounds], with OMP_NUM_THREADS threads.

Prints lines "name value", as bench_onnx does.
"""
import os
import pathlib
import statistics
import sys
import time

import numpy
import onnxruntime

RUNS = 20


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    options.inter_op_num_threads = 1
    for file in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        feed = {"x": numpy.load(file.with_suffix(".npy"))}
        session.run(None, feed)
        clock, processor = [], []
        for _ in range(rounds):
            start, began = time.perf_counter(), time.process_time()
            for _ in range(RUNS):
                session.run(None, feed)
            clock.append(time.perf_counter() - start)
            processor.append(time.process_time() - began)
        for kind, times in (("ms", clock), ("processor_ms", processor)):
            label = f"onnxruntime_{file.stem}_{kind}"
            print(f"{label:<36} {statistics.median(times) * 1e3 / RUNS:12.3f}", flush=True)


main()
