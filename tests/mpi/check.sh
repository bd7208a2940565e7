#!/usr/bin/env bash
# Runs a scenario of ranks.cpp or train.cpp: check.sh <program> <scenario> <ranks> [options of mpirun...] -- <pattern>...
# Passes if the output contains every pattern, and the program ends in time.
set -uo pipefail
program=$1 scenario=$2 ranks=$3
shift 3
options=()
while [ "$1" != -- ]; do options+=("$1") && shift; done
shift

# The tests may run as root and on few cores.
export ESPALIER_PRINT=all OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ "$scenario" != shares_cores ] || unset OMP_NUM_THREADS
# MPI does not free all of its memory.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
output=$(timeout --kill-after=5 300 mpirun --oversubscribe "${options[@]}" -np "$ranks" "$program" "$scenario" 2>&1)
status=$?
printf '%s\n(exit status %d)\n' "$output" "$status"
if [ "$status" -eq 124 ] || { [ "$status" -eq 137 ] && [ "$scenario" != dies ]; }; then echo "it hung" && exit 1; fi
for pattern; do
  grep -qE "$pattern" <<<"$output"$'\n'"status $status" || { echo "not found: $pattern" && exit 1; }
done
