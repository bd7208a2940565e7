#!/usr/bin/env bash
# Checks an espalier-run without shared libraries: static_program.sh STATIC DYNAMIC PLAN, whose input is x [-1, 6]. It is
# small, and computes what the other espalier-run computes, up to rounding, on any kernels that OpenBLAS has in it. CMake
# refuses what cannot be linked so.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
static=$1 dynamic=$2 plan=$3
export ESPALIER_CACHE=off
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [[ $(LC_ALL=C ldd "$static" 2>&1 || true) != *"not a dynamic executable"* ]]; then
  echo "$static loads shared libraries" >&2
  exit 1
fi
strip -o "$folder/stripped" "$static"
size=$(stat --format=%s "$folder/stripped")
echo "$size bytes"
[ "$size" -lt 20000000 ] || { echo "$static is too large" >&2 && exit 1; }

python3 - "$folder/x.npy" <<'PYTHON'
import struct, sys
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 6), }".ljust(117) + "\n"
numbers = [(7 * i % 11 - 5) / 5 for i in range(30)]
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<30f", *numbers))
PYTHON
run() { # [name=value of the environment] program output
  local set=()
  [ $# -eq 2 ] || { set=("$1") && shift; }
  env "${set[@]}" "$1" "$plan" --input "$folder/x.npy" --output "$folder/$2.npy"
}
run "$dynamic" expected
# Nehalem's kernels are those of Prescott in it.
for kernels in "" OPENBLAS_CORETYPE=Nehalem; do
  run ${kernels:+"$kernels"} "$static" got
  python3 - "$folder/expected.npy" "$folder/got.npy" <<'PYTHON'
import struct, sys
contents = [open(file, "rb").read() for file in sys.argv[1:]]
heads, values = zip(*((c[: -15 * 4], struct.unpack("<15f", c[-15 * 4 :])) for c in contents))
assert heads[0] == heads[1] and all(abs(a - b) < 1e-5 for a, b in zip(*values)), values
PYTHON
done

if cmake --preset static -S "$root" -B "$folder/refused" -DESPALIER_ONEDNN=ON >"$folder/said" 2>&1 ||
  ! tr -s ' \n' ' ' <"$folder/said" | grep -q "ESPALIER_STATIC_PROGRAMS=ON needs ESPALIER_ONEDNN=OFF"; then
  cat "$folder/said" >&2
  exit 1
fi
