#!/usr/bin/env bash
# Compares Espalier with PyTorch on random cases: tests/peers/run.sh [cases] [seed]
# $PYTORCH (by default python3) is a Python that has torch; else a virtual environment with PyPI's gets made in build/.
# To see a case again: tests/peers/run.py build/peers/tests/peers/espalier_peers.so --case N --seed S
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cases=${1:-100000} seed=${2:-0}
build=$PWD/build/peers
python=${PYTORCH:-python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  python=$PWD/build/pytorch/bin/python
  if ! "$python" -c 'import torch' 2>/dev/null; then
    cmake/install_dependencies.sh peers
    python3 -m venv build/pytorch
    "$python" -m pip install --quiet torch torchvision numpy
  fi
fi
cmake/install_dependencies.sh build
command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_PEERS=ON -DESPALIER_CUDA=OFF \
  -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=ON -DCMAKE_UNITY_BUILD=ON >/dev/null
cmake --build "$build" --target espalier_peers --parallel "$(nproc)"
exec "$python" tests/peers/run.py "$build/tests/peers/espalier_peers.so" --cases "$cases" --seed "$seed"
