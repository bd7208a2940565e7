#!/usr/bin/env bash
# Builds the library and one sample and runs it; installs missing packages first.
# Usage: samples/run.sh digits [arguments of the sample...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=${1:?"usage: samples/run.sh <sample> [arguments...]"}
shift

cmake/install_dependencies.sh build
# Builds with CUDA only if there is a GPU, since nvcc is slow.
cuda=OFF
if nvidia-smi --list-gpus >/dev/null 2>&1; then cuda=AUTO; fi
cmake --preset release -B build/samples -DESPALIER_BUILD_TESTS=OFF -DESPALIER_CUDA=$cuda
cmake --build build/samples --target "$name"
exec "build/samples/samples/$name" "$@" # from the project's root, to which paths of data are relative
