#!/usr/bin/env bash
# Builds the benchmarks for a GPU (Release, in build/bench-gpu) and runs them: tests/bench/gpu/run.sh [turns] [workload...]
# Workloads: machine mlp idle pointwise optimizer gpt chain vision lstm attention all_reduce; by default all of them.
# Earlier figures of the others stay in the tables. The contestants alternate; every figure is a median. $PYTORCH is a Python whose PyTorch has
# CUDA, by default python3. $BENCH_GPU_BUILD is a folder with benchmarks that are already built, $BENCH_GPU_RESULTS the folder
# for the figures. It fails if a program fails; a missed aim is only reported.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader ||
  { echo "run.sh: no GPU was found, so nothing was measured" >&2 && exit 1; }
turns=3
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then turns=$1 && shift; fi
read -ra workloads <<<"${*:-machine mlp idle pointwise optimizer gpt chain vision lstm attention all_reduce}"
rounds=3      # rounds of a program in each turn
limit=420     # seconds that a program may take
read -ra peers <<<"${BENCH_PEERS:-}" # of PyTorch: plain graph compiled compiled_graph; by default all of them
for workload in "${workloads[@]}"; do
  case $workload in
    machine | mlp | idle | pointwise | optimizer | gpt | chain | vision | lstm | attention | all_reduce) ;;
    *) echo "run.sh: there is no workload $workload" >&2 && exit 2 ;;
  esac
done

build=${BENCH_GPU_BUILD:-}
if [ -z "$build" ]; then
  build=$PWD/build/bench-gpu
  command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_CUDA=ON -DESPALIER_BUILD_BENCH=ON \
    -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF >/dev/null
  cmake --build "$build" --parallel "$(nproc)" --target bench_gpu bench_gpu_machine bench_gpu_all_reduce
fi
programs=$build/tests/bench/gpu
results=${BENCH_GPU_RESULTS:-$build/results}
mkdir -p "$results"
export ESPALIER_CACHE_DIR=$results/cache TORCHINDUCTOR_CACHE_DIR=$results/inductor TRITON_CACHE_DIR=$results/triton
PYTORCH=${PYTORCH:-python3}
pytorch=no
if "$PYTORCH" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  pytorch=$("$PYTORCH" -c 'import torch; print(torch.__version__)')
fi

failed=()
turn_of() { # a workload, the file of its figures
  run() {
    echo "  $*" >&2
    timeout "$limit" "$@" >>"$file" || failed+=("$*")
  }
  local workload=$1 file=$2 nodes
  case $workload in
    machine)
      run "$programs/bench_gpu_machine" ceilings $rounds
      run "$programs/bench_gpu_machine" products
      return 0
      ;;
    mlp)
      run "$programs/bench_gpu" mlp $rounds
      nodes=$(awk '$1 == "mlp_nodes" { nodes = int($2) } END { print nodes }' "$file")
      if [ -n "$nodes" ]; then run "$programs/bench_gpu_machine" floor "$nodes" $rounds; fi
      ;;
    idle)
      run "$programs/bench_gpu" idle $rounds
      return 0
      ;;
    all_reduce)
      run "$programs/bench_gpu_all_reduce" $rounds
      return 0
      ;;
    *) run "$programs/bench_gpu" "$workload" $rounds ;;
  esac
  if [ "$pytorch" != no ]; then run "$PYTORCH" tests/bench/gpu/peer.py "$workload" $rounds "${peers[@]}"; fi
}

for workload in "${workloads[@]}"; do : >"$results/$workload.txt"; done
for ((turn = 1; turn <= turns; ++turn)); do
  for workload in "${workloads[@]}"; do
    echo "turn $turn of $turns: $workload" >&2
    turn_of "$workload" "$results/$workload.txt"
  done
done

printf 'PyTorch: %s; medians of %s turns\n\n' "$pytorch" "$turns"
tests/bench/gpu/table.sh "$results"/*.txt
for one in "${failed[@]}"; do echo "FAILED: $one"; done
[ ${#failed[@]} -eq 0 ]
