#!/usr/bin/env bash
# Builds and runs all tests; installs missing packages first. The last line is "N passed, N failed".
# Usage: tests/run.sh [preset] [arguments for cmake...]; the presets are release (the default), dev, asan and tsan.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=release
case ${1:-} in '' | -*) ;; *) preset=$1 && shift ;; esac

stopped() { echo "0 passed, 1 failed" && exit 1; }
packages=(build tests onnx mpi)
[ "$preset" != asan ] || packages+=(asan)
cmake/install_dependencies.sh "${packages[@]}" || stopped
no_gpu=() # that runs what is compiled: one architecture, and code that is not optimized
if ! nvidia-smi >/dev/null 2>&1; then
  fast=-Xptxas=-O0
  # Takes less than half of the time. CUDA 12.9 and later.
  help=$(PATH=$PATH:/usr/local/cuda/bin "${CUDACXX:-nvcc}" --help 2>/dev/null) || true
  [[ $help != *Ofast-compile* ]] || fast=--Ofast-compile=max
  no_gpu=(-DESPALIER_CUDA_ARCHITECTURES=90 "-DCMAKE_CUDA_FLAGS_RELEASE=-O0 -DNDEBUG $fast")
fi
cmake --preset "$preset" -DESPALIER_BUILD_TESTS=ON "${no_gpu[@]}" "$@" || stopped
cmake --build --preset "$preset" || stopped

results=build/$preset/tests
[ ! -d "$results" ] || find "$results" -name '*.xml' -delete
launch=()
# The thread sanitizer of g++ 12 does not support all address layouts of newer kernels.
[ "$preset" != tsan ] || launch=(setarch --addr-no-randomize)
# Samples and tests of processes run alone. The others, the long ones, hardly use more than a core.
"${launch[@]}" ctest --preset "$preset" -LE at_once --no-tests=error --output-junit "$PWD/$results/ctest.xml" || true
"${launch[@]}" ctest --preset "$preset" -L at_once -j "$(nproc)" --output-junit "$PWD/$results/ctest_at_once.xml" || true

# A Boost.Test program reports its numbers of cases in a file; a crash or a failed start is one more failure.
passed=0 failed=0
while read -r name status; do
  cases_failed=0
  report=$(find "$results" -name "$name.xml" | head -n 1)
  if [ -s "$report" ]; then
    count() { sed -nE "s/.*<TestSuite [^>]* test_cases_$1=\"([0-9]+)\".*/\1/p" "$report"; }
    passed=$((passed + $(count passed) + $(count passed_with_warnings)))
    cases_failed=$(count failed)
  elif [ "$status" = run ]; then
    passed=$((passed + 1))
  fi
  [ "$status" = run ] || [ "$cases_failed" -gt 0 ] || cases_failed=1
  failed=$((failed + cases_failed))
done < <(sed -nE 's/.*<testcase name="([^"]*)".* status="([^"]*)".*/\1 \2/p' "$results"/ctest*.xml)
[ $((passed + failed)) -gt 0 ] || stopped
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
