#!/usr/bin/env bash
# Builds the fuzzers and runs them, two at once: run.sh [seconds for each] [names, such as npy]. What they find and
# their output stay in build/fuzz/. The fuzzers of ONNX files, "onnx", and of plan files that are run, "plan_load", link the
# library of the preset asan: they run when they are named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export seconds=${1:-60}
names=("${@:2}")
[ ${#names[@]} -gt 0 ] || names=(csv idx image libsvm npy npz plan safetensors)

readers=() whole=() targets=()
for name in "${names[@]}"; do
  case $name in
    onnx | plan_load) whole+=("$name") targets+=("fuzz_$name" "fuzz_${name}_seeds") ;;
    *) readers+=("$name") ;;
  esac
done
mkdir -p build/fuzz/seeds
if [ ${#readers[@]} -gt 0 ]; then
  cmake/install_dependencies.sh build fuzz
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g" -DCMAKE_CXX_COMPILER=clang++-16 \
    -DESPALIER_FUZZ=ON -DESPALIER_CUDA=OFF -DESPALIER_MPI=OFF -DESPALIER_OPENMP=OFF -DESPALIER_BUILD_TESTS=OFF \
    -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=ON
  cmake --build build/fuzz --target fuzzers
  build/fuzz/tests/fuzz/fuzz_seeds build/fuzz/seeds
fi
if [ ${#whole[@]} -gt 0 ]; then
  cmake/install_dependencies.sh build tests onnx asan
  cmake --preset asan
  cmake --build --preset asan --target "${targets[@]}"
  for name in "${whole[@]}"; do "build/asan/tests/fuzz/fuzz_${name}_seeds" "build/fuzz/seeds/$name"; done
fi

fuzz() {
  # Readers hold what a file claims against its size first: no file of 64 KiB needs more than this.
  local log="build/fuzz/$1.log" more=() build=fuzz
  case $1 in onnx | plan_load) build=asan ;; esac
  # A plan may ask for a long computation, and for lists as long as its attributes say.
  if [ "$1" = plan_load ]; then more=(-fork=1 -ignore_timeouts=1 -ignore_ooms=1 -timeout=5); fi
  if OMP_NUM_THREADS=1 "build/$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=65536 -malloc_limit_mb=512 \
    -rss_limit_mb=2048 -timeout=20 "${more[@]}" -artifact_prefix="build/fuzz/$1-" "build/fuzz/seeds/$1" >"$log" 2>&1; then
    echo "$1: $(tail -n 1 "$log")"
  else
    tail -n 100 "$log"
    echo "$1: failed"
    return 1
  fi
}
export -f fuzz
printf '%s\n' "${names[@]}" | xargs -P 2 -n 1 bash -c 'fuzz "$1"' fuzz
