#!/usr/bin/env bash
# Includes point one way only: core <- ops <- nn, optim, data <- executor; and what espalier.h includes stays free of the
# libraries beneath, so that users need none of their headers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A may_include=(
  [core]="core"
  [ops]="core ops"
  [nn]="core ops nn"
  [optim]="core ops optim"
  [data]="core ops data"
  [executor]="core ops nn optim data executor"
)
bad=0
complain() { echo "$1: $2" >&2; bad=1; }

for folder in "${!may_include[@]}"; do
  while IFS= read -r -d '' file; do
    while IFS= read -r path; do
      case $path in
        espalier/*/*)
          target=${path#espalier/}
          [[ " ${may_include[$folder]} " == *" ${target%%/*} "* ]] || complain "$file" "$folder/ may not include $path"
          ;;
        *) complain "$file" "\"$path\" does not name its folder, as \"espalier/core/tensor.h\" does" ;;
      esac
    done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*("|<espalier\/)([^">]*)[">].*/\1\2/p' "$file" |
      sed -E 's/^["<]//')
  done < <(find "$folder" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0)
done

# All headers which espalier.h reaches.
declare -A seen=()
queue=(espalier.h)
while [ ${#queue[@]} -gt 0 ]; do
  file=${queue[0]}
  queue=("${queue[@]:1}")
  [ -z "${seen[$file]:-}" ] || continue
  seen[$file]=1
  [ -e "$file" ] || { complain "$file" "is included, but not there" && continue; }
  while IFS= read -r header; do complain "$file" "a public header includes <$header>"; done < <(
    sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]((dnnl|cblas|openblas|fmt\/|nlohmann\/|boost\/|omp\.h|cuda|cudnn|cublas|nccl|mpi)[^>"]*)[>"].*/\1/p' "$file")
  while IFS= read -r header; do queue+=("$header"); done < <(
    sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]espalier\/([^>"]*)[>"].*/\1/p' "$file")
done
[ "$bad" -eq 0 ]
