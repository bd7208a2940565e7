#!/usr/bin/env bash
# Builds the library and one sample and runs it; installs the packages which are missing first.
# Usage: samples/run.sh digits [arguments of the sample...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=${1:?"usage: samples/run.sh <sample> [arguments...]"}
shift

cmake/install_dependencies.sh build
# A toolkit alone is no reason to wait for nvcc.
cuda=OFF
if nvidia-smi --list-gpus >/dev/null 2>&1; then cuda=AUTO; fi
cmake --preset release -B build/samples -DESPALIER_BUILD_TESTS=OFF -DESPALIER_CUDA=$cuda
cmake --build build/samples --target "$name"
exec "build/samples/samples/$name" "$@" # from the project's root, where its data has the path which it names
