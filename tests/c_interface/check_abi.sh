#!/usr/bin/env bash
# Checks that the C interface of a shared library is what programs compiled earlier take it for, as abi.c has it: types
# and values of the header, names in the library. check_abi.sh libespalier.so
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
header="$here/../../executor/espalier_c.h"
library=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/espalier/executor"

compile() { # the header that lies in $work
  "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -I"$work" -c "$here/abi.c" -o "$work/abi.o"
}

# First that each change of the header is found.
changes=('s/size_t input_count/uint32_t input_count/' 's/\(esp_save(\)const /\1/' 's/esp_status esp_input(/int64_t esp_input(/'
  's/int32_t rank/int64_t rank/' 's/const char\* dtype;/const char** dtype;/' 's/ESP_FILE = 2/ESP_FILE = 7/'
  's/^size_t esp_output_count.*//')
for change in "${changes[@]}"; do
  sed "$change" "$header" >"$work/espalier/executor/espalier_c.h"
  ! cmp -s "$header" "$work/espalier/executor/espalier_c.h" || { echo "'$change' changes nothing" >&2 && exit 1; }
  ! compile 2>/dev/null || { echo "'$change' is not found" >&2 && exit 1; }
done

cp "$header" "$work/espalier/executor/espalier_c.h"
compile
names() { nm "$@" --format=posix | cut -d' ' -f1 | grep '^esp_' | sort; }
diff <(names --undefined-only "$work/abi.o") <(names --dynamic --defined-only "$library") >&2 ||
  { echo "abi.c (<) and the library (>) have other functions" >&2 && exit 1; }
"${CC:-cc}" "$work/abi.o" -o "$work/abi" "$library" -Wl,-rpath,"$(cd "$(dirname "$library")" && pwd)"
"$work/abi"
