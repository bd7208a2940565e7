#!/usr/bin/env bash
# Every file and folder that README.md, CONTRIBUTING.md, docs/*.md and docs/*/*.md name exists. What counts as a path:
#   - the target of a Markdown link, unless it is a URL: relative to the page (code in backticks has none);
#   - a word that begins with a folder of the repository and "/" (`core/op.h`, `tests/run.sh`, `espalier/core/op.h`): from
#     the root; everywhere but in blocks of C++;
#   - a word in backticks that ends like a source file (`plan.cpp`, `passes/precision.cpp`), or names a folder in one of the
#     repository's (`fused/`): the end of some path.
# A "*" stands for any characters but "/". Blocks of C++ are compiled instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pages=(README.md CONTRIBUTING.md docs/*.md docs/*/*.md)
# Files of other projects, and files that programs write.
foreign=" mpi.h nccl.h sysexits.h CMakeLists.txt gemm_choices.txt "
files=$(find . \( -path ./build -o -path ./.git \) -prune -o -type f -printf '%P\n')
folders=$(sed -nE 's|^([^/]+)/.*|\1|p' <<<"$files" | sort -u)
character='[A-Za-z0-9_.*/-]'
from_root="(espalier/)?($(paste -sd'|' <<<"${folders//./\\.}"))/$character*"
ending='(h|cpp|cu|cuh|cmake|sh|py|md|txt|json|css|js|map)'
bad=0

# Sets `pattern` to a regular expression for the path.
to_pattern() {
  pattern=${1//./\\.}
  pattern=${pattern//\*/[^/]*}
  [[ $1 == */ ]] || pattern+='(/|$)'
}
exists_from_root() { to_pattern "$1" && grep -qE "^$pattern" <<<"$files"; }
exists_somewhere() { to_pattern "$1" && grep -qE "(^|/)$pattern" <<<"$files"; }

for page in "${pages[@]}"; do
  complain() { echo "$page:$1: there is no $2" >&2 && bad=1; }
  # Blocks of C++ become empty lines, so the numbers of lines stay.
  text=$(sed '/^```cpp$/,/^```$/s/.*//' "$page")

  while IFS=: read -r line path; do
    path=${path%%#*}
    [[ -z $path || -e $(dirname "$page")/$path ]] || complain "$line" "$path"
  done < <(sed 's/`[^`]*`//g' <<<"$text" | grep -noE '\]\([^)]+\)' | sed -E 's/\]\((.*)\)$/\1/' | grep -vE '^[0-9]+:[a-z]+://' || true)

  while IFS=: read -r line path; do
    path=${path#espalier/}
    path=${path%.}
    exists_from_root "$path" || complain "$line" "$path"
  done < <(grep -noP "(?<![A-Za-z0-9_.*/<>~\$(-])$from_root" <<<"$text" || true)

  while IFS=: read -r line path; do
    [[ $path =~ ^$from_root$ || $foreign == *" $path "* ]] || exists_somewhere "$path" || complain "$line" "$path"
  done < <(grep -noP "(?<=\`)($character*[A-Za-z0-9_*]\.$ending|[a-z_]+(/[a-z_]+)*/)(?=\`)" <<<"$text" || true)
done
exit $bad
