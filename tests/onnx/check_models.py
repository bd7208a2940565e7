#!/usr/bin/env python3
"""Checks the files of write_models: onnx.checker takes them, and onnxruntime computes what Espalier does. check_models.py folder"""
import pathlib
import sys

import numpy
import onnx
import onnxruntime


def main():
    wrong = 0
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
    for file in files:
        try:
            onnx.checker.check_model(str(file), full_check=True)
        except Exception as error:
            sys.exit(f"{file.name}: {error}")
        base = str(file.with_suffix(""))
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        theirs = session.run(None, {"x": numpy.load(base + ".x.npy")})[0]
        for kind in ("y", "again"):
            ours = numpy.load(f"{base}.{kind}.npy")
            scale = float(numpy.abs(theirs).max()) or 1.0
            error = float(numpy.abs(ours - theirs).max()) / scale if ours.shape == theirs.shape else float("inf")
            print(f"{file.stem} {kind}: {ours.shape}, error {error:.1e}")
            wrong += not error <= 1e-5
    if not files or wrong:
        sys.exit(f"{wrong} of {2 * len(files)} results differ")


if __name__ == "__main__":
    main()
