#!/usr/bin/env bash
# Checks the direction of includes: a folder may include itself and those before it in its row of `orders`. The headers
# that espalier.h includes must not include those of other libraries, which users may not have.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Sub-folders that are not named here (cpu/, mpi/ and the like) belong to the folder above them; so does core/deferred/,
# since eager nodes may wait anywhere. The headers of executor/ itself are its public face ("executor"), its sources
# ("executor.cpp") come last.
executor=$(printf 'executor/%s ' communicators graph sharding fused plan passes cost)
executor+="executor $(printf 'executor/%s ' runtime replicas report training c_export) executor.cpp"
cuda="core/files core/cuda"
ops="ops $(printf 'ops/%s ' views indexing elementwise joining reductions sorting losses random products normalization images)"
ops+="$(printf 'ops/%s ' loop ctc matmul attention linalg convolution recurrent pooling regions)"
data="data/files data/views data/transforms data data/workers"
orders=(
  "core $cuda $ops nn nn/vision nn/onnx"
  "core $cuda $ops optim"
  "core $cuda $data"
  "core $cuda $ops optim $data $executor"
)
bad=0
complain() { echo "$1: $2" >&2; bad=1; }

declare -A may_include=()
for order in "${orders[@]}"; do
  before=
  for folder in $order; do
    before+=" $folder "
    may_include[$folder]=$before
  done
done
# What stands around a training is above all of these, modules included.
may_include[executor/kit]="$before nn nn/vision nn/onnx executor/kit "

# The folder of `orders` for a path of this repository.
folder_of() {
  local folder=${1%/*}
  [[ $1 != executor/*.cpp || $1 == executor/*/* ]] || folder=executor.cpp
  while [ -z "${may_include[$folder]:-}" ] && [[ $folder == */* ]]; do folder=${folder%/*}; done
  echo "$folder"
}

# Headers of executor/ and data/ that include nothing of these, such as options, may be included everywhere in them.
is_leaf() { # <top-level folder> <header>
  [[ $1 == executor || $1 == data ]] && [[ $2 == "$1"/*.h && $2 != "$1"/*/* ]] && ! grep -q "#include \"espalier/$1/" "$2"
}

for top in core ops nn optim data executor; do
  while IFS= read -r -d '' file; do
    folder=$(folder_of "$file")
    while IFS= read -r path; do
      case $path in
        espalier/*/*)
          target=${path#espalier/}
          if [[ ${may_include[$folder]} != *" $(folder_of "$target") "* ]] && ! is_leaf "$top" "$target"; then
            complain "$file" "$folder/ may not include $path"
          fi
          ;;
        *) complain "$file" "\"$path\" does not name its folder, as \"espalier/core/tensor.h\" does" ;;
      esac
    done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*("|<espalier\/)([^">]*)[">].*/\1\2/p' "$file" |
      sed -E 's/^["<]//')
  done < <(find "$top" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.in' \) -print0)
done

# All headers that espalier.h includes, directly or indirectly.
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
