#!/usr/bin/env bash
# A run that fails is resumed with other numbers of ranks: resume.sh <train> <scenario> <ranks> <ranks>...
# The first job runs the scenario; each of the others resumes from its last checkpoint and must give the result
# of an uninterrupted run in one process.
set -uo pipefail
train=$1 scenario=$2 first=$3
shift 3
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPI does not free all of its memory.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
job() { timeout --kill-after=5 300 mpirun --oversubscribe -np "$1" "$train" "$2" "$folder/run" 2>&1; }

job "$first" "$scenario"
status=$?
echo "(exit status $status)"
[ "$status" -eq 124 ] && echo "it hung" && exit 1
cp -r "$folder/run" "$folder/left"
for ranks; do
  rm -rf "$folder/run" && cp -r "$folder/left" "$folder/run"
  output=$(job "$ranks" "${ESPALIER_TEST_RESUME:-resume}")
  status=$?
  printf '%s\n(exit status %d with %d ranks)\n' "$output" "$status" "$ranks"
  [ "$status" -eq 0 ] && [ "$(grep -c ': done$' <<<"$output")" -eq "$ranks" ] || exit 1
done
