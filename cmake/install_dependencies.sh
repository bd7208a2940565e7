#!/usr/bin/env bash
# Installs missing Debian packages: install_dependencies.sh build [static] [tests] [onnx] [mpi] [asan] [checks] [aarch64] [fuzz] [bench] [peers]
# Without root rights, it prints them and stops.
set -euo pipefail

# Packages to install; "command=package" is a tool that may be installed in any way.
declare -A groups=(
  [build]="g++=g++ cmake=cmake ninja=ninja-build
           libfmt-dev libdnnl-dev libopenblas-openmp-dev nlohmann-json3-dev libdlpack-dev
           zlib1g-dev libpng-dev libjpeg62-turbo-dev libcli11-dev"
  [static]="gfortran=gfortran"
  [tests]="libboost-test-dev"
  [onnx]="libonnx-dev libprotobuf-dev protobuf-compiler"
  [mpi]="libopenmpi-dev mpirun=openmpi-bin"
  [checks]="ccache=ccache clang++-16=clang-16 clang-format=clang-format pkg-config=pkg-config chromium=chromium python3=python3 python3-venv
            arm-none-eabi-gcc=gcc-arm-none-eabi libnewlib-arm-none-eabi aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu libc6-dev-arm64-cross
            riscv64-linux-gnu-gcc=gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-aarch64=qemu-user lintian=lintian"
  [aarch64]="aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user"
  [asan]="clang++-16=clang-16 libclang-rt-16-dev libomp-16-dev"
  [fuzz]="clang++-16=clang-16 libclang-rt-16-dev"
  [peers]="python3-venv"
  [bench]="libbenchmark-dev libtorch-dev"
)

installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for group in "$@"; do
  for item in ${groups[$group]:?"there is no group $group"}; do
    case $item in
      *=*) command -v "${item%%=*}" >/dev/null || missing+=("${item#*=}") ;;
      *) installed "$item" || missing+=("$item") ;;
    esac
  done
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "This is not Debian; not checking for its packages ${missing[*]}." >&2
  exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo --non-interactive)
  if ! command -v sudo >/dev/null || ! "${as_root[@]}" true; then
    echo "Packages are missing, and installing them needs root. Please run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

echo "Installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq || echo "apt-get update failed; trying with the package lists at hand" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install --yes -qq --no-install-recommends "${missing[@]}"
