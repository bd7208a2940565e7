#!/usr/bin/env bash
# Builds and runs external programs and a plug-in that use the library in one of three ways, in a folder with a space in
# its name, with the compiler CXX (by default c++):
#   tests/consumer/run.sh find_package|pkg_config PREFIX       against an installation under PREFIX
#   tests/consumer/run.sh add_subdirectory static|shared
set -euo pipefail
export ESPALIER_CACHE=off # nothing of this is for the user
export CXX=${CXX:-c++}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
way=$1
with=$2
build="$root/build/consumer builds/$way $(basename "$with")"
rm -rf "$build"
mkdir -p "$build"

# The program must load the OpenMP build of OpenBLAS, whatever the default of the machine is.
check_and_run() {
  if ldd "$1" | grep 'libopenblas' | grep -v '/openblas-openmp/'; then
    echo "$1 loads the wrong OpenBLAS" >&2
    return 1
  fi
  "$@"
}

# A plug-in must not export its Espalier, else two plug-ins would use the same one.
check_plugin() {
  local shown
  shown=$(nm --dynamic --defined-only --format=posix "$2" | cut -d' ' -f1)
  grep -qx slope_of_square <<<"$shown" || { echo "$2 does not export its own function" >&2 && return 1; }
  # Instances of templates of the standard library are always visible.
  if grep -E '^_Z(GV|T[ISVTWH])?N?[KRO]*8espalier' <<<"$shown" | c++filt >&2; then
    echo "$2 exports these symbols of Espalier" >&2
    return 1
  fi
  check_and_run "$1" "$2"
}

# With the part for ONNX files or without it.
with_onnx=$(find "$with" -name espalierOnnxTargets.cmake 2>/dev/null || true)
run_onnx() { # where it writes a file
  (cd "$build" && check_and_run "./$1")
}

# A program with a static Espalier finds the library for MPI in the installation that it was built with.
check_job() {
  [ -e "$with/lib/libespalier.a" ] && [ -e "$with/lib/libespalier_mpi.so" ] || return 0
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ESPALIER_MPI_LIBRARY=libespalier_mpi.so \
    env -u LD_LIBRARY_PATH mpirun --oversubscribe -np 2 "$1"
}

case $way in
  find_package)
    cmake -S "$here/find_package" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$with"
    cmake --build "$build"
    check_and_run "$build/consumer"
    check_plugin "$build/host" "$build/plugin.so"
    check_job "$build/job"
    if ldd "$build/consumer" | grep -E 'libonnx|libprotobuf'; then
      echo "a program that reads no ONNX files loads their libraries" >&2
      exit 1
    fi
    [ -z "$with_onnx" ] || run_onnx onnx_consumer
    cmake --install "$build" --prefix "$build/installed"
    LD_LIBRARY_PATH="$with/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" check_and_run "$build/installed/bin/consumer"
    ;;
  pkg_config)
    export PKG_CONFIG_PATH="$with/lib/pkgconfig" LD_LIBRARY_PATH="$with/lib"
    compile() { # pkg-config quotes for the shell
      eval "\$CXX -std=c++20 -Wall -Wextra -Wshadow -Wconversion -Werror \"\$here/$1.cpp\" -o \"\$build/$2\" ${*:3} $flags"
    }
    for static in "" --static; do
      if [ -n "$with_onnx" ]; then
        flags=$(pkg-config $static --cflags --libs espalier_onnx)
        compile onnx "onnx$static"
        run_onnx "onnx$static"
      fi
      flags=$(pkg-config $static --cflags --libs espalier)
      compile main "consumer$static"
      check_and_run "$build/consumer$static"
      compile job "job$static"
      check_job "$build/job$static"
      compile plugin "plugin$static.so" -shared -fPIC -fvisibility=hidden
      compile host "host$static" -ldl
      check_plugin "$build/host$static" "$build/plugin$static.so"
    done
    flags=$(pkg-config --cflags espalier)
    flags=${flags//-isystem/-I} # no warning comes from headers that are taken for the project's own, either
    compile main consumer-own -fsyntax-only
    ;;
  add_subdirectory)
    shared=OFF
    [ "$with" = static ] || shared=ON
    # What is asked here is how projects build and link it: not optimized, it is compiled in half of the time.
    configure() {
      cmake -S "$here/add_subdirectory" -B "$build" -G Ninja -DESPALIER_SOURCE="$root" -DBUILD_SHARED_LIBS=$shared \
        -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DESPALIER_CCACHE=ON "$@"
    }
    # With CUDA one source, for one architecture, stands for all.
    configure -DESPALIER_CUDA_ARCHITECTURES=90 -DCMAKE_UNITY_BUILD=OFF
    cuda=espalier/CMakeFiles/espalier.dir/core/cuda/copy.cu.o
    if grep -qF "$cuda" "$build/build.ninja"; then ninja -C "$build" "$cuda"; fi
    configure -DESPALIER_CUDA=OFF -DCMAKE_UNITY_BUILD=ON
    cmake --build "$build"
    check_and_run "$build/consumer"
    check_plugin "$build/host" "$build/plugin.so"
    ;;
  *)
    echo "unknown way $way" >&2
    exit 2
    ;;
esac
