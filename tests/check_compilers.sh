#!/usr/bin/env bash
# CMake refuses compilers that are too old, and Clang with OpenMP, each in one sentence. The test uses current compilers
# with definitions that make them report older versions.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# refused <compiler> <its definitions> <pattern of the message> [arguments for cmake]...
refused() {
  local compiler=$1 definitions=$2 pattern=$3 said
  shift 3
  rm -rf "$folder/build"
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$compiler" "$definitions" >"$folder/compiler"
  chmod +x "$folder/compiler"
  if cmake -S "$root" -B "$folder/build" -G Ninja -DCMAKE_CXX_COMPILER="$folder/compiler" -DESPALIER_CUDA=OFF "$@" \
    >"$folder/said" 2>&1; then
    echo "$compiler $definitions is accepted" >&2
    return 1
  fi
  said=$(tr -s ' \n' ' ' <"$folder/said") # CMake breaks the lines
  if [ "$(grep -c '^CMake Error' "$folder/said")" -ne 1 ] || ! grep -qE "$pattern" <<<"$said"; then
    cat "$folder/said" >&2
    return 1
  fi
}

refused g++ "-U__GNUC__ -D__GNUC__=11" "Espalier needs GCC 12 or later, and [^ ]+ is GCC 11\.[0-9.]+\."
clang="clang++-16 -Wno-builtin-macro-redefined"
refused "$clang" "-U__clang_major__ -D__clang_major__=15" "Espalier needs Clang 16 or later, and [^ ]+ is Clang 15\.[0-9.]+\."
refused "$clang" "" "Clang compiles for the OpenMP runtime libomp, and OpenBLAS brings libgomp" -DESPALIER_OPENMP=ON
