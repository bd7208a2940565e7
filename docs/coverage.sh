#!/usr/bin/env bash
# Counts what other libraries have and Espalier has, from the lists in coverage/, into coverage.md:
#   docs/coverage.sh           writes coverage.md
#   docs/coverage.sh --check   fails unless coverage.md is as it would be written
# A line of a list is "name: words": the functions and classes of public headers that do its work, or "-". A word that
# no public header declares fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the headers that espalier.h includes declare.
declare -A seen=()
queue=(espalier.h)
while [ ${#queue[@]} -gt 0 ]; do
  file=${queue[0]}
  queue=("${queue[@]:1}")
  [ -z "${seen[$file]:-}" ] || continue
  seen[$file]=1
  while IFS= read -r header; do queue+=("$header"); done < <(
    sed -nE 's/^#include [<"]espalier\/([^">]*)[">].*/\1/p' "$file")
done
declared=$(cat "${!seen[@]}" | sed -E 's/\/\/.*//' |
  grep -oE '(class|struct) [A-Za-z_0-9]+|[A-Za-z_0-9]+\(' | sed -E 's/^(class|struct) //; s/\($//' | sort -u)

bad=0
table() { # list, title
  local list=docs/coverage/$1.txt all covered
  all=$(grep -vc '^#' "$list")
  covered=$(grep -v '^#' "$list" | grep -vc ': -$' || true)
  while IFS= read -r word; do
    echo "$list: no public header declares $word" >&2 && bad=1
  done < <(comm -23 <(grep -v '^#' "$list" | sed -E 's/^[^:]*: //' | tr ' ' '\n' | grep -vx -e - | sort -u) <(echo "$declared"))
  printf '\n## %s: %d of %d\n\n| there | here |\n| --- | --- |\n' "$2" "$covered" "$all"
  grep -v '^#' "$list" | grep -v ': -$' | sed -E 's/^([^:]*): (.*)$/\1;\2/' |
    awk -F';' '{ gsub(/ /, "`, `", $2); printf "| %s | `%s` |\n", $1, $2 }'
  printf '\nNot here: %s.\n' "$(grep -v '^#' "$list" | sed -nE 's/: -$//p' | paste -sd, | sed 's/,/, /g')"
}

text=$(
  echo "# Coverage"
  echo
  echo "What other libraries have by name, and the functions, layers and losses here that do its work in one call. This page is written"
  echo "by \`docs/coverage.sh\` from the lists in \`docs/coverage/\`."
  table torch_nn "Modules of torch::nn"
  table torch_functional "Functions of torch::nn::functional"
  table onnx_18 "Operators of ONNX, opset 18"
  table dynet_nodes "DyNet's tests of nodes"
  table mlx_ops "MLX's tests of operations"
  exit $bad
)
if [ "${1:-}" = --check ]; then
  diff <(echo "$text") docs/coverage.md >&2 || { echo "docs/coverage.md: run docs/coverage.sh" >&2 && exit 1; }
else
  echo "$text" >docs/coverage.md
fi
