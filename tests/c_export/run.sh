#!/usr/bin/env bash
# Exported C code on devices: run.sh <exported_model>. The program writes networks and numbers that they compute; a
# C program computes these again, compiled for this machine by gcc and clang, for aarch64 and riscv64 under qemu, and
# linked for a Cortex-M4, without a heap. Prints the sizes of code. Compilers that are missing are errors, not skipped.
set -euo pipefail
program=$(realpath "${1:?usage: run.sh <exported_model>}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$program" "$folder"
warnings=(-std=c99 -Wall -Wextra -Wconversion -Werror)
for model in digits convolution lstm transformer; do
  sources=("$here/device.c" "$model.c")
  flags=("${warnings[@]}" -DMODEL="\"$model.c\"" -DNUMBERS="\"$model.h\"" -I"$folder")
  # build <compiler> [flags]...: the program `device`
  build() { "$@" "${flags[@]}" "${sources[@]}" -o device -lm; }

  for compiler in gcc clang-16; do
    for level in -O0 -O2 -O3; do
      build "$compiler" "$level"
      ./device
    done
  done
  build gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
  ./device
  build aarch64-linux-gnu-gcc -O2 -static
  qemu-aarch64 ./device
  build riscv64-linux-gnu-gcc -O2 -static
  qemu-riscv64 ./device

  arm=(arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -Os -ffunction-sections
    -fdata-sections -Wdouble-promotion)
  "${arm[@]}" "${flags[@]}" -c "$model.c" -o model.o
  "${arm[@]}" "${flags[@]}" -DON_DEVICE -nostartfiles --specs=nosys.specs -Wl,--gc-sections,-e,main "${sources[@]}" \
    -o device.elf -lm
  if arm-none-eabi-nm device.elf | grep -E ' [TtW] (_?malloc|_?free|_?sbrk|_malloc_r)$'; then
    echo "$model: the program for a Cortex-M4 has a heap" >&2
    exit 1
  fi
  arm-none-eabi-size model.o | awk -v model="$model" 'NR == 2 {
    print model " on a Cortex-M4: " $1 " bytes of code and constants, " $2 + $3 " bytes of memory" }'
done
