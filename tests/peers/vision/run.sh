#!/usr/bin/env bash
# Compares the models of nn/vision/ with torchvision's: tests/peers/vision/run.sh [arguments of compare.py...]
# $PYTORCH (by default python3) is a Python that has torchvision; else a virtual environment with PyPI's gets made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

build=$PWD/build/peers
python=${PYTORCH:-python3}
packages='import safetensors, torchvision'
if ! "$python" -c "$packages" 2>/dev/null; then
  python=$PWD/build/pytorch/bin/python
  if ! "$python" -c "$packages" 2>/dev/null; then
    cmake/install_dependencies.sh peers
    python3 -m venv build/pytorch
    "$python" -m pip install --quiet torch torchvision numpy safetensors
  fi
fi
cmake/install_dependencies.sh build
command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_PEERS=ON -DESPALIER_CUDA=OFF \
  -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=ON -DCMAKE_UNITY_BUILD=ON >/dev/null
cmake --build "$build" --target espalier_vision_peer --parallel "$(nproc)"
exec "$python" tests/peers/vision/compare.py "$build/tests/peers/espalier_vision_peer" "$@"
