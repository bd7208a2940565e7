#!/usr/bin/env bash
# Builds the benchmarks (Release, in build/bench) and runs them: tests/bench/run.sh [turns]
# The contestants take turns, so that whatever else the machine does hits them alike; every figure is a median.
# With libtorch installed (Debian: libtorch-dev) the same programs run in it, side by side.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

turns=${1:-5} # of all programs
rounds=3      # which a program times in its turn
# One thread, whatever the shell was set to; THREADS=2 tests/bench/run.sh to see two.
export OMP_NUM_THREADS=${THREADS:-1} CCACHE_DISABLE=1

build=build/bench
programs=$build/tests/bench
results=$build/results.txt
cmake/install_dependencies.sh build
command -v ninja >/dev/null && export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DESPALIER_BUILD_BENCH=ON \
  -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CCACHE=OFF >/dev/null
cmake --build "$build" --parallel "$(nproc)"
torch=no
if grep -q '^Torch_DIR:[A-Z]*=/' "$build/CMakeCache.txt"; then
  cmake --build "$build" --target bench_peers --parallel 1 && torch=yes # a compilation takes a gigabyte
fi

# libtorch at its best: the OpenMP build of OpenBLAS, and a malloc that keeps what is freed.
peer() {
  env "LD_LIBRARY_PATH=/usr/lib/$(cc -print-multiarch)/openblas-openmp" MALLOC_MMAP_THRESHOLD_=1073741824 \
    MALLOC_TRIM_THRESHOLD_=4294967296 "$@"
}

: >"$results"
for ((turn = 1; turn <= turns; ++turn)); do
  echo "turn $turn of $turns"
  for name in chain mlp; do
    "$programs/bench_$name" "$rounds" >>"$results"
    if [ $torch = yes ]; then peer "$programs/peer/torch_$name" "$rounds" >>"$results"; fi
  done
done

# Compile time: the command CMake recorded for small.cpp, repeated.
note() { echo "$1 $2" >>"$results"; }
weigh() { # prefix, small.cpp, folder and name of the programs, runs of the compiler, launcher
  local prefix=$1 source=$2 binary=$3 runs=$4 command figures
  shift 4
  command=$(sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | grep -F "$source" |
    head -n 1 | sed 's/\\"/"/g; s/\\\\/\\/g')
  figures=$(cd "$build" && tests/bench/bench_measure "$runs" bash -c "$command")
  note "${prefix}_compile_ms" "${figures% *}"
  note "${prefix}_compile_mb" "${figures#* }"
  strip -o "$build/stripped" "${binary}_small"
  note "${prefix}_binary_bytes" "$(stat -c %s "$build/stripped")"
  figures=$("$@" "$programs/bench_measure" 21 "${binary}_hello")
  note "${prefix}_start_ms" "${figures% *}"
}
echo "compile time, size and start"
weigh espalier bench/weight/small.cpp "$programs/bench" 5 env
if [ $torch = yes ]; then weigh torch bench/peer/small.cpp "$programs/peer/torch" 3 peer; fi

value() { # the median of a quantity, or - if there is none
  awk -v name="$1" '$1 == name { print $2 }' "$results" | sort -g |
    awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}
over() { # a / b
  awk -v a="$1" -v b="$2" 'BEGIN { if (a == "-" || b == "-" || b == 0) print "-"; else printf "%.2f", a / b }'
}
scaled() { awk -v a="$1" -v by="$2" 'BEGIN { if (a == "-") print "-"; else printf "%.2f", a * by }'; }
row() { printf '%-44s %10s %10s %10s   %s\n' "$@"; }

floor=$(value mlp_floor_us) eager=$(value mlp_eager_us) executor=$(value mlp_executor_us)
mlp_torch=$(value mlp_torch_us) hand=$(value mlp_hand_us)
shared=$(value chain_shared_ns) shared_torch=$(value chain_shared_torch_ns)
distinct=$(value chain_distinct_ns) distinct_torch=$(value chain_distinct_torch_ns)

echo
grep '^# ' "$results" | tail -n 5 | sed 's/^# //'
echo
[ $torch = yes ] || echo "libtorch: not installed"
row "OMP_NUM_THREADS=$OMP_NUM_THREADS, medians of $turns turns" espalier libtorch floor ratio
row "op overhead, one variable [ns/op]" "$shared" "$shared_torch" - \
  "libtorch/espalier $(over "$shared_torch" "$shared")"
row "op overhead, a leaf per add [ns/op]" "$distinct" "$distinct_torch" - \
  "libtorch/espalier $(over "$distinct_torch" "$distinct")"
row "MLP, eager [us/step]" "$eager" "$mlp_torch" "$floor" \
  "eager/floor $(over "$eager" "$floor"), libtorch/eager $(over "$mlp_torch" "$eager")"
row "MLP, executor [us/step]" "$executor" "$mlp_torch" "$floor" \
  "executor/floor $(over "$executor" "$floor"), libtorch/executor $(over "$mlp_torch" "$executor")"
row "MLP, eager over executor" "$(over "$eager" "$executor")" - - ""
row "MLP, written by hand [us/step]" "$hand" - "$floor" "hand/floor $(over "$hand" "$floor")"
arena=$(value plan_arena_kb) live=$(value plan_largest_live_kb) peak=$(value eager_peak_kb)
row "MLP, memory of the plan [kB]" "$arena" - "$live" \
  "arena/largest live set $(over "$arena" "$live"), arena/eager peak $(over "$arena" "$peak")"
row "MLP, memory of an eager step [kB]" "$peak" - - ""
row "compile 30 lines [s]" "$(scaled "$(value espalier_compile_ms)" 1e-3)" \
  "$(scaled "$(value torch_compile_ms)" 1e-3)" - \
  "libtorch/espalier $(over "$(value torch_compile_ms)" "$(value espalier_compile_ms)")"
row "  and the memory it takes [MB]" "$(value espalier_compile_mb)" "$(value torch_compile_mb)" - ""
row "their stripped binary [MB]" "$(scaled "$(value espalier_binary_bytes)" 1e-6)" \
  "$(scaled "$(value torch_binary_bytes)" 1e-6)" - "Espalier static, libtorch shared"
row "start of hello tensor [ms]" "$(value espalier_start_ms)" "$(value torch_start_ms)" - \
  "libtorch/espalier $(over "$(value torch_start_ms)" "$(value espalier_start_ms)")"
