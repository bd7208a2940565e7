#!/usr/bin/env bash
# Everything that needs a GPU: tests/gpu/run.sh [stage] [folder for logs and figures] [suite or workload...]
# Stages: build, tests, memcheck, racecheck, synccheck and initcheck (these four together: sanitizers), bench; by
# default all. The folder is build/gpu/out by default. After it come suites of the tests for the sanitizers, or
# workloads for bench (tests/bench/gpu/run.sh); BENCH_TURNS is the number of turns. Suites run side by side, on half of
# the cores. Each stage but build needs the results of build, and takes some minutes at most, except bench, which takes
# longer with PyTorch.
#
# It ends with a table of results, and fails if a stage fails or there is no GPU. A machine needs the CUDA
# toolkit, a C++ compiler and CMake; libraries are also found through CMAKE_PREFIX_PATH, and are installed only if they are
# missing and apt-get can do so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

stage=all
case ${1:-} in
  build | tests | memcheck | racecheck | synccheck | initcheck | sanitizers | bench | all) stage=$1 && shift ;;
esac
out=${1:-build/gpu/out}
[ $# -eq 0 ] || shift
chosen=("$@")
case $stage in
  build | tests | all)
    [ ${#chosen[@]} -eq 0 ] || { echo "tests/gpu/run.sh: $stage takes no ${chosen[*]}" >&2 && exit 2; }
    ;;
esac
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
build=$PWD/build/gpu
tests=$build/tests/espalier_tests

# Suites whose ops run on a GPU. Racecheck and synccheck run those with Espalier's own kernels that use shared memory and
# shuffles, initcheck those that read what other kernels have written.
own_kernels="cuda_attention cuda_copy cuda_fused cuda_pointwise indexing normalize reduce softmax_and_losses"
declare -A suites_of=(
  [memcheck]="$own_kernels cuda_communicator cuda_lt cuda_matmul cuda_replicas cuda_runtime dlpack pointwise view matmul
    cuda_executor"
  [racecheck]=$own_kernels
  [synccheck]=$own_kernels
  [initcheck]="$own_kernels cuda_executor cuda_replicas"
)
limit=240 # seconds for a suite under a sanitizer

# Requires a device: tests that were not run have not passed.
nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader >"$out/device.txt" 2>&1 || {
  echo "tests/gpu/run.sh: no GPU was found (by nvidia-smi), so nothing was run" >&2
  exit 1
}
cat "$out/device.txt"

notes=$out/notes.txt # also from what runs in the background
: >"$notes"
note() { # what, whether it passed, more
  printf '%-44s %-7s %s\n' "$1" "$2" "${3:-}" | tee -a "$notes" >&2
}
check() { # what, its log, a command
  local what=$1 log=$out/$2 start=$SECONDS
  shift 2
  if "$@" </dev/null >"$log" 2>&1; then
    note "$what" passed "$((SECONDS - start)) s"
  else
    note "$what" FAILED "$((SECONDS - start)) s; see $log"
    tail -n 30 "$log" >&2
    return 1
  fi
}

configure() {
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_CUDA=ON -DESPALIER_BUILD_TESTS=ON \
    -DESPALIER_BUILD_BENCH=ON -DESPALIER_BUILD_SAMPLES=OFF -DCMAKE_CUDA_FLAGS=-lineinfo
}
configure_with_packages() {
  configure || { cmake/install_dependencies.sh build tests && configure; }
}
build() {
  command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
  check "configure" configure.log configure_with_packages &&
    check "build" build.log cmake --build "$build" --parallel "$(nproc)" \
      --target espalier_tests step_allocations bench_gpu bench_gpu_machine bench_gpu_all_reduce
}

# Runs suites, optionally under a tool, and counts their cases in Boost.Test's report. Suites for CUDA are skipped if
# no device can be used, so at least one case must have run.
suites() { # what, the log, a filter of suites or "", the tool and its arguments
  local what=$1 name=$2 filter=$3 start=$SECONDS report status=0 passed cases_failed
  shift 3
  report=$out/$name.xml
  rm -f "$report"
  "$@" "$tests" ${filter:+"--run_test=$filter"} --report_level=short --report_format=XML --report_sink="$report" \
    --color_output=no </dev/null >"$out/$name.log" 2>&1 || status=$?
  count() {
    local n
    n=$(sed -nE "s/.*<TestSuite [^>]* test_cases_$1=\"([0-9]+)\".*/\1/p" "$report" 2>/dev/null)
    echo "${n:-0}"
  }
  passed=$(($(count passed) + $(count passed_with_warnings))) cases_failed=$(count failed)
  if [ "$status" -eq 0 ] && [ "$passed" -gt 0 ]; then
    note "$what" passed "$passed cases, $((SECONDS - start)) s"
  else
    note "$what" FAILED "$passed cases passed, $cases_failed failed, status $status, $((SECONDS - start)) s; see $out/$name.log"
    tail -n 30 "$out/$name.log" >&2
    return 1
  fi
}

# Runs a command in the background once fewer than half of the cores have one.
at_once() {
  local most=$((($(nproc) + 1) / 2))
  while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n || true; done
  OMP_NUM_THREADS=2 "$@" &
}

# Fails if no GPU can be used: the runtime may fail even if nvidia-smi does not.
run_tests() {
  suites "a GPU can be used" gpu cuda_copy timeout 120 || return
  local all i few=8
  readarray -t all < <("$tests" --list_content 2>&1 | sed -nE 's/^([a-z0-9_]+)[*]?$/\1/p')
  for ((i = 0; i < ${#all[@]}; i += few)); do
    at_once suites "tests from ${all[i]}" "tests-${all[i]}" "$(IFS=, && echo "${all[*]:i:few}")" timeout 540
  done
  wait
  # NCCL uses one rank per GPU; with one GPU there is a single rank. Builds without NCCL have no such suite.
  if grep -q '^ESPALIER_NCCL_INCLUDE:PATH=/' "$build/CMakeCache.txt"; then
    suites "NCCL on this machine's GPUs" nccl nccl_library,cuda_nccl timeout 240
  fi
  check "a step allocates nothing" step_allocations.log timeout 60 "$build/tests/step_allocations"
  return 0
}
sanitize() { # a tool of compute-sanitizer, and suites
  local tool=$1 suite sanitizer
  shift
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    { note "$tool" FAILED "there is no compute-sanitizer" && return 1; }
  # Tests cause errors of the runtime on purpose, so only errors of kernels count.
  for suite in "$@"; do
    at_once suites "$tool: $suite" "$tool-$suite" "$suite" timeout "$limit" "$sanitizer" --tool "$tool" \
      --report-api-errors no --error-exitcode 99
  done
  wait
}
run_bench() {
  BENCH_GPU_BUILD=$build BENCH_GPU_RESULTS=$out/bench tests/bench/gpu/run.sh "${BENCH_TURNS:-3}" "$@" | tee "$out/bench.txt"
  if [ "${PIPESTATUS[0]}" -eq 0 ]; then
    note "benchmarks" passed "$(grep -c ' reached$' "$out/bench.txt") aims reached, $(
      grep -c ' MISSED$' "$out/bench.txt") missed, $(grep -c ' not measured$' "$out/bench.txt") not measured"
  else
    note "benchmarks" FAILED "see $out/bench.txt"
  fi
}

if [ "$stage" = build ] || [ "$stage" = all ]; then build || stage=stopped; fi
if [ "$stage" != build ] && [ "$stage" != stopped ] && [ ! -x "$tests" ]; then
  note "the tests' program" FAILED "is not there: tests/gpu/run.sh build"
  stage=stopped
fi
case $stage in tests | all) run_tests || stage=stopped ;; esac
for checker in memcheck racecheck synccheck initcheck; do
  read -r -d '' -a checked <<<"${suites_of[$checker]}" || true
  [ ${#chosen[@]} -eq 0 ] || checked=("${chosen[@]}")
  case $stage in "$checker" | sanitizers | all) sanitize "$checker" "${checked[@]}" ;; esac
done
case $stage in bench | all) run_bench "${chosen[@]}" ;; esac

printf '\n%s: %s\n' "tests/gpu/run.sh" "$(head -n 1 "$out/device.txt")"
cat "$notes"
! grep -q ' FAILED ' "$notes"
