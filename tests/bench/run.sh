#!/usr/bin/env bash
# Builds the benchmarks (Release, in build/bench) and runs them: tests/bench/run.sh [turns] [workload...]
# Workloads: chain mlp inference pointwise gpt vision lstm tagger trees get_executor weight passes; by default
# all of them.
# The contestants alternate, so that other load affects them equally; every figure is a median.
# Next to Espalier it runs libtorch, if installed (Debian: libtorch-dev), and PyTorch, MLX, DyNet and NNabla, if
# $PYTORCH, $MLX, $DYNET and $NNABLA (by default $PYTORCH) are a Python that has them; for vision, torchvision too.
# THREADS="1 2" sets the numbers of threads, with one table for each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

turns=5
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then turns=$1 && shift; fi
read -ra workloads <<<"${*:-chain mlp inference pointwise gpt vision lstm tagger trees get_executor weight passes}"
rounds=3 # which a program times in its turn

build=$PWD/build/bench
programs=$build/tests/bench
export CCACHE_DISABLE=1 ESPALIER_CACHE_DIR=$build/cache TORCHINDUCTOR_CACHE_DIR=$build/inductor
cmake/install_dependencies.sh build
command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_BUILD_BENCH=ON \
  -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=OFF -DESPALIER_CUDA=OFF >/dev/null
cmake --build "$build" --parallel "$(nproc)"
torch=no
if grep -q '^Torch_DIR:[A-Z]*=/' "$build/CMakeCache.txt"; then
  cmake --build "$build" --target bench_peers --parallel 1 && torch=yes # a compilation takes a gigabyte
fi
PYTORCH=${PYTORCH:-build/pytorch/bin/python}
pytorch=no
if "$PYTORCH" -c 'import torch' 2>/dev/null; then pytorch=yes; fi
MLX=${MLX:-$PYTORCH}
mlx=no
if "$MLX" -c 'import mlx.core' 2>/dev/null; then mlx=yes; fi
DYNET=${DYNET:-$PYTORCH}
dynet=no
if "$DYNET" -c 'import dynet' 2>/dev/null; then dynet=yes; fi
NNABLA=${NNABLA:-$PYTORCH}
nnabla=no
if "$NNABLA" -c 'import nnabla' >/dev/null 2>&1; then nnabla=yes; fi

# The best settings for libtorch: the OpenMP build of OpenBLAS, with the processor set if it detects a very old
# one, and a malloc that keeps freed memory.
openblas=/usr/lib/$(cc -print-multiarch)/openblas-openmp
peer_settings=("LD_LIBRARY_PATH=$openblas"
  MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296)
core=$("$programs/bench_machine" core)
case $core in
  Prescott | Core2 | Penryn | Nehalem)
    if grep -qw avx512f /proc/cpuinfo; then peer_settings+=(OPENBLAS_CORETYPE=SkylakeX); fi
    if ! grep -qw avx512f /proc/cpuinfo && grep -qw avx2 /proc/cpuinfo; then
      peer_settings+=(OPENBLAS_CORETYPE=Haswell)
    fi
    ;;
esac
peer() { env "${peer_settings[@]}" "$@"; }

# The commands of a turn of a workload; they append lines to $results.
espalier() { "$programs/bench_$1" "${@:2}" >>"$results"; }
libtorch() { if [ $torch = yes ]; then peer "$programs/peer/torch_$1" "${@:2}" >>"$results"; fi; }
python() {
  [ $pytorch = yes ] || return 0
  for contestant in "$1" "$1_compiled"; do
    "$PYTORCH" tests/bench/peer/pytorch/bench.py "$contestant" "$rounds" >>"$results"
  done
}
# The wheel contains the reference BLAS, which is 15 times slower; it is replaced by OpenBLAS.
mlx() {
  [ $mlx = no ] || LD_PRELOAD=$openblas/libopenblas.so.0 peer "$MLX" tests/bench/peer/mlx/bench.py "$@" >>"$results"
}
script() { [ $pytorch = no ] || "$PYTORCH" "tests/bench/peer/pytorch/$1.py" "${@:2}" >>"$results"; }
# DyNet computes on one thread, and prints its settings to standard error.
dynet() {
  [ $dynet = no ] || "$DYNET" "tests/bench/peer/dynet/$1.py" "${@:2}" 2>/dev/null >>"$results"
}
nnabla() { [ $nnabla = no ] || "$NNABLA" tests/bench/peer/nnabla/vision.py "$1" 0 1 2>/dev/null >>"$results"; }
turn_of() {
  case $1 in
    chain) espalier chain $rounds && libtorch chain $rounds ;;
    mlp) espalier mlp $rounds && libtorch mlp $rounds && python mlp && mlx mlp $rounds ;;
    inference) espalier inference $rounds && libtorch inference $rounds && python inference ;;
    pointwise)
      espalier stream $rounds
      for direction in forward backward; do
        espalier pointwise ${direction}_eager $rounds && espalier pointwise ${direction}_executor $rounds
        libtorch pointwise $direction $rounds && python pointwise_$direction
        mlx pointwise_$direction $rounds
      done
      ;;
    gpt)
      for contestant in floor eager executor; do espalier gpt $contestant $rounds; done
      libtorch gpt $rounds && python gpt
      ;;
    vision)
      for network in document training resnet18 mobilenet; do
        for how in executor eager bfloat16 floor; do espalier vision ${network}_$how 0 $rounds; done
        libtorch vision $network 0 $rounds
        for how in eager channels_last compiled autocast; do script vision ${network}_$how 0 $rounds; done
        # It takes half a minute for a step of the document's network.
        if [ $turn = 1 ]; then for how in static dynamic; do nnabla ${network}_$how; done; fi
      done
      ;;
    lstm)
      for contestant in executor eager; do espalier lstm $contestant $rounds; done
      libtorch lstm $rounds && script lstm $rounds && dynet lstm $rounds
      ;;
    tagger)
      espalier tagger $rounds && libtorch tagger $rounds && script tagger $rounds
      dynet tagger $rounds --dynet-autobatch 1
      ;;
    trees)
      espalier trees $rounds && libtorch trees $rounds && script trees $rounds
      dynet trees $rounds --dynet-autobatch 1 && dynet trees $rounds
      ;;
    get_executor)
      ESPALIER_CACHE_DIR=$(mktemp -d) && export ESPALIER_CACHE_DIR
      espalier get_executor cold && espalier get_executor cached
      rm -r "$ESPALIER_CACHE_DIR" && ESPALIER_CACHE_DIR=$build/cache
      ;;
    weight | passes) ;; # once, after the turns
    *) echo "run.sh: there is no workload $1" >&2 && return 2 ;;
  esac
}

# Compile time: the command CMake recorded for small.cpp, repeated.
note() { echo "$1 $2" >>"$results"; }
weigh() { # prefix, small.cpp, folder and name of the programs, runs of the compiler, launcher
  local prefix=$1 source=$2 binary=$3 runs=$4 command figures
  shift 4
  command=$(sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | grep -F "$source" |
    head -n 1 | sed 's/\\"/"/g; s/\\\\/\\/g')
  figures=$(cd "$build" && tests/bench/bench_measure "$runs" bash -c "$command")
  note "${prefix}_compile_s" "$(awk -v ms="${figures% *}" 'BEGIN { print ms / 1000 }')"
  note "${prefix}_compile_mb" "${figures#* }"
  strip -o "$build/stripped" "${binary}_small"
  note "${prefix}_binary_mb" "$(stat -c %s "$build/stripped" | awk '{ print $1 / 1e6 }')"
  figures=$("$@" "$programs/bench_measure" 21 "${binary}_hello")
  note "${prefix}_start_ms" "${figures% *}"
}

wanted() { [[ " ${workloads[*]} " = *" $1 "* ]]; }
read -ra thread_counts <<<"${THREADS:-1 2}"
for count in "${thread_counts[@]}"; do
  export OMP_NUM_THREADS=$count
  results=$build/results-$count.txt
  : >"$results"
  for ((turn = 1; turn <= turns; ++turn)); do
    echo "threads $count, turn $turn of $turns: ${workloads[*]}" >&2
    for workload in "${workloads[@]}"; do turn_of "$workload"; done
  done
  if wanted weight && [ "$count" = "${thread_counts[0]}" ]; then
    weigh espalier bench/weight/small.cpp "$programs/bench" 5 env
    if [ $torch = yes ]; then weigh torch bench/peer/small.cpp "$programs/peer/torch" 3 peer; fi
  fi
  if wanted passes; then "$programs/bench_passes" "$turns" >"$build/passes-$count.md"; fi
done

echo "OpenBLAS takes this processor for a $core; libtorch: $torch (${peer_settings[*]}); PyTorch: $pytorch; MLX: $mlx; DyNet: $dynet; NNabla: $nnabla"
for count in "${thread_counts[@]}"; do
  printf '\n%s\n' "threads: $count, medians of $turns turns"
  tests/bench/table.sh "$build/results-$count.txt"
  if wanted passes; then printf '\n%s\n' "step without a pass, over a step with all:" && cat "$build/passes-$count.md"; fi
done
