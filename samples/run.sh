#!/usr/bin/env bash
# Builds the library and one sample and runs it; installs the packages which are missing first.
# Usage: samples/run.sh digits [arguments of the sample...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=${1:?"usage: samples/run.sh <sample> [arguments...]"}
shift

cmake/install_dependencies.sh build
cmake --preset release -B build/samples -DESPALIER_BUILD_TESTS=OFF
cmake --build build/samples --target "$name"
exec "build/samples/samples/$name" "$@" # from the project's root, where its data has the path which it names
