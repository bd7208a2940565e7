#!/usr/bin/env bash
# Builds the library and its tests for aarch64 by Debian's cross compiler, and runs them under qemu: run.sh [suite...], by
# default all. Debian's packages for arm64 are unpacked below build/aarch64; nothing of them is installed. An emulated
# processor is slow: it takes more than half an hour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake/install_dependencies.sh build aarch64

folder=$PWD/build/aarch64
sysroot=$folder/sysroot
packages=(libc6-dev libgomp1 libstdc++6 libdnnl-dev libopenblas-openmp-dev libfmt-dev nlohmann-json3-dev libdlpack-dev
  zlib1g-dev libpng-dev libjpeg62-turbo-dev libboost-test-dev)
if [ ! -d "$sysroot" ]; then
  # An apt of its own, which knows arm64 alone.
  apt=$folder/apt
  mkdir -p "$apt"/{lists/partial,archives/partial}
  : >"$apt/status"
  cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Debug::NoLocking "true";
END
  export APT_CONFIG=$apt/apt.conf
  apt-get update -qq
  apt-get install --yes -qq --download-only --no-install-recommends "${packages[@]}"
  unset APT_CONFIG
  rm -rf "$sysroot.new" # of a run that was interrupted
  mkdir "$sysroot.new"
  for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot.new"; done
  mv "$sysroot.new" "$sysroot"
fi

cmake -S . -B "$folder/build" -G Ninja --toolchain cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DESPALIER_CCACHE=ON \
  -DESPALIER_CUDA=OFF -DESPALIER_NCCL=OFF -DESPALIER_MPI=OFF -DESPALIER_ONNX=OFF -DESPALIER_BUILD_PROGRAMS=OFF \
  -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_BUILD_DOCS=OFF -DESPALIER_BUILD_TESTS=ON -DESPALIER_WARNINGS_AS_ERRORS=ON \
  -DCMAKE_UNITY_BUILD=ON
cmake --build "$folder/build" --target espalier_tests

# Not under qemu: a child that goes on with threads, a process that starts itself, and a limit on memory.
skipped='!child_process:!interrupt/a_process_of_its_own:!checkpoint/it_resumes_in_another_process'
skipped+=':!allocator/the_cache_is_given_back_before_memory_is_refused'
run=(qemu-aarch64 -L "$sysroot" "$folder/build/tests/espalier_tests")
suites=("$@")
if [ ${#suites[@]} -eq 0 ]; then
  mapfile -t suites < <("${run[@]}" --list_content 2>&1 | sed -nE 's/^([a-z]\w*)\*?$/\1/p' | grep -vx child_process)
fi
logs=$folder/logs
mkdir -p "$logs"
export ESPALIER_CACHE=off CC=aarch64-linux-gnu-gcc OMP_NUM_THREADS=2
# Its output is shown only if a case fails.
printf '%s\n' "${suites[@]}" | xargs -P "$(nproc)" -I SUITE bash -c '
  "$@" --run_test="SUITE" --color_output=no --report_level=short >"$0/SUITE" 2>&1 || { echo "SUITE:"; cat "$0/SUITE"; exit 1; }
' "$logs" "${run[@]}" --run_test="$skipped"
echo "${#suites[@]} suites passed on aarch64"
