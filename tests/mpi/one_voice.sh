#!/usr/bin/env bash
# The output of three ranks appears once; three times with ESPALIER_PRINT=all or ESPALIER_DISTRIBUTED=off: one_voice.sh <ranks>
set -uo pipefail
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPI does not free all of its memory.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
count() {
  output=$(timeout --kill-after=5 300 mpirun --oversubscribe -np 3 "$1" speaks 2>&1)
  printf '%s\n(exit status %d)\n' "$output" $?
  [ "$(grep -c '^cout$' <<<"$output")" -eq "$2" ] && [ "$(grep -c '^printf$' <<<"$output")" -eq "$2" ]
}
count "$1" 1 && ESPALIER_PRINT=all count "$1" 3 && ESPALIER_DISTRIBUTED=off count "$1" 3
