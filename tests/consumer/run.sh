#!/usr/bin/env bash
# Builds and runs a program outside the project which uses it in one of three ways, in a folder with a space in its name:
#   tests/consumer/run.sh find_package|pkg_config PREFIX       against what is installed under PREFIX
#   tests/consumer/run.sh add_subdirectory static|shared
set -euo pipefail
export ESPALIER_CACHE=off # nothing of this is for the user
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
way=$1
with=$2
build="$root/build/consumer builds/$way $(basename "$with")"
rm -rf "$build"
mkdir -p "$build"

# The OpenMP build of OpenBLAS is the one which must run, whichever is the machine's default.
check_and_run() {
  if ldd "$1" | grep 'libopenblas' | grep -v '/openblas-openmp/'; then
    echo "$1 loads the wrong OpenBLAS" >&2
    return 1
  fi
  "$1"
}

case $way in
  find_package)
    cmake -S "$here/find_package" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$with"
    cmake --build "$build"
    check_and_run "$build/consumer"
    cmake --install "$build" --prefix "$build/installed"
    LD_LIBRARY_PATH="$with/lib" check_and_run "$build/installed/bin/consumer"
    ;;
  pkg_config)
    export PKG_CONFIG_PATH="$with/lib/pkgconfig" LD_LIBRARY_PATH="$with/lib"
    for static in "" --static; do
      flags=$(pkg-config $static --cflags --libs espalier)
      eval "g++ -std=c++20 \"\$here/main.cpp\" -o \"\$build/consumer$static\" $flags" # pkg-config quotes for the shell
      check_and_run "$build/consumer$static"
    done
    ;;
  add_subdirectory)
    shared=OFF
    [ "$with" = static ] || shared=ON
    cmake -S "$here/add_subdirectory" -B "$build" -G Ninja -DESPALIER_SOURCE="$root" -DBUILD_SHARED_LIBS=$shared \
      -DESPALIER_CCACHE=ON
    cmake --build "$build"
    check_and_run "$build/consumer"
    ;;
  *)
    echo "there is no way $way" >&2
    exit 2
    ;;
esac
