#!/usr/bin/env bash
# The shared library shows its own names and no others: check_symbols.sh libespalier.so
set -euo pipefail
names=$(nm --dynamic --defined-only --format=posix "$1" | cut -d' ' -f1)

# Mangled names: what comes before the name itself says "type information of", "guard of", "const" and the like.
foreign=$(grep -vE '^_Z(GV|T[ISVTWH]|T[hv][n0-9_]+_|Tc.*_)?Z?N[KRO]*8espalier' <<<"$names" | c++filt || true)
if [ -n "$foreign" ]; then
  printf 'Not of namespace espalier:\n%s\n' "$foreign" >&2
  exit 1
fi
# Exceptions are caught and classes are derived from outside.
for name in _ZTIN8espalier5ErrorE _ZTIN8espalier2OpE; do
  grep -qx "$name" <<<"$names" || { echo "$(c++filt "$name") is hidden" >&2 && exit 1; }
done
