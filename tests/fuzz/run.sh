#!/usr/bin/env bash
# Builds the fuzzers and runs them, two at once: run.sh [seconds for each] [names, such as npy]. What they find and
# their output stay in build/fuzz/. The fuzzer of ONNX files, "onnx", needs the whole library: it runs when it is named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export seconds=${1:-60}
names=("${@:2}")
[ ${#names[@]} -gt 0 ] || names=(csv idx image libsvm npy npz plan safetensors)

groups=(build fuzz) targets=(fuzzers)
if [[ " ${names[*]} " = *" onnx "* ]]; then groups+=(onnx) targets+=(fuzz_onnx fuzz_onnx_seeds); fi
cmake/install_dependencies.sh "${groups[@]}"
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g" -DCMAKE_CXX_COMPILER=clang++-16 \
  -DESPALIER_FUZZ=ON -DESPALIER_CUDA=OFF -DESPALIER_MPI=OFF -DESPALIER_OPENMP=OFF -DESPALIER_BUILD_TESTS=OFF \
  -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=ON
cmake --build build/fuzz --target "${targets[@]}"
build/fuzz/tests/fuzz/fuzz_seeds build/fuzz/seeds
if [ ${#targets[@]} -gt 1 ]; then build/fuzz/tests/fuzz/fuzz_onnx_seeds build/fuzz/seeds/onnx; fi

fuzz() {
  # Readers hold what a file claims against its size first: no file of 64 KiB needs more than this.
  local log="build/fuzz/$1.log"
  if build/fuzz/tests/fuzz/"fuzz_$1" -max_total_time="$seconds" -max_len=65536 -malloc_limit_mb=512 \
    -rss_limit_mb=2048 -timeout=20 -artifact_prefix="build/fuzz/$1-" "build/fuzz/seeds/$1" >"$log" 2>&1; then
    echo "$1: $(tail -n 1 "$log")"
  else
    tail -n 100 "$log"
    echo "$1: failed"
    return 1
  fi
}
export -f fuzz
printf '%s\n' "${names[@]}" | xargs -P 2 -n 1 bash -c 'fuzz "$1"' fuzz
