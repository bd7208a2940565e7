#!/usr/bin/env bash
# Checks that the shared library exports its own names only: check_symbols.sh libespalier.so
set -euo pipefail
names=$(nm --dynamic --defined-only --format=posix "$1" | cut -d' ' -f1)

# The C interface is what its header declares.
declared=$(grep -oE '\besp_[a-z_]+\(' "$(dirname "$0")/../executor/espalier_c.h" | tr -d '(' | sort -u)
exported=$(grep -E '^esp_' <<<"$names" | sort -u)
[ "$declared" = "$exported" ] || { printf 'Declared in C:\n%s\nExported:\n%s\n' "$declared" "$exported" >&2 && exit 1; }
names=$(grep -vE '^esp_' <<<"$names")

# Mangled names: the prefix of the name means "type information of", "guard of", "const" and the like.
foreign=$(grep -vE '^_Z(GV|T[ISVTWH]|T[hv][n0-9_]+_|Tc.*_)?Z?N[KRO]*8espalier' <<<"$names" | c++filt || true)
if [ -n "$foreign" ]; then
  printf 'Not of namespace espalier:\n%s\n' "$foreign" >&2
  exit 1
fi
# Users catch exceptions and derive from classes.
for name in _ZTIN8espalier5ErrorE _ZTIN8espalier2OpE; do
  grep -qx "$name" <<<"$names" || { echo "$(c++filt "$name") is hidden" >&2 && exit 1; }
done
