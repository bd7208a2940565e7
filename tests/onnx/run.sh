#!/usr/bin/env bash
# Runs ONNX's backend test suite and writes the scoreboard in docs/onnx.md: tests/onnx/run.sh [program]
# $ONNX_PYTHON (by default python3) is a Python that has onnx; else a virtual environment with PyPI's gets made in build/.
# `program` is espalier_onnx_cases of a build; else it is built in build/onnx.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=${ONNX_PYTHON:-python3}
if ! "$python" -c 'import onnx' 2>/dev/null; then
  python=$PWD/build/onnx_python/bin/python
  if ! "$python" -c 'import onnx' 2>/dev/null; then
    cmake/install_dependencies.sh peers
    python3 -m venv build/onnx_python
    "$python" -m pip install --quiet onnx onnxruntime numpy
  fi
fi
program=${1:-}
if [ -z "$program" ]; then
  cmake/install_dependencies.sh build onnx
  command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
  cmake -S . -B build/onnx -DCMAKE_BUILD_TYPE=Release -DESPALIER_CUDA=OFF -DESPALIER_ONNX=ON -DESPALIER_BUILD_TESTS=OFF \
    -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=ON >/dev/null
  cmake --build build/onnx --target espalier_onnx_cases --parallel "$(nproc)"
  program=build/onnx/tests/onnx/espalier_onnx_cases
fi
exec "$python" -W ignore tests/onnx/scoreboard.py "$program" docs/onnx.md
