#!/usr/bin/env bash
# Builds the Debian packages, checks them with lintian where that is installed, unpacks them below a temporary root, and
# builds and runs a program and a plug-in with what lies there. Where root runs it and none of the packages is installed, they
# are installed instead by apt-get, and removed at the end.
#   tests/package/run.sh [BUILD]    a build folder that is built, with -DCMAKE_INSTALL_PREFIX=/usr; else one is made
set -euo pipefail
export ESPALIER_CACHE=off # nothing of this is for the user
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

if [ -z "$build" ]; then
  build="$root/build/package"
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_SHARED_LIBS=ON \
    -DESPALIER_BUILD_TESTS=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_CUDA=OFF -DESPALIER_NCCL=OFF -DESPALIER_MPI=OFF \
    -DESPALIER_CCACHE=ON -DCMAKE_UNITY_BUILD=ON
  cmake --build "$build"
fi
(cd "$build" && cpack -G DEB -B "$work/packages")

shared=$(grep -qx 'BUILD_SHARED_LIBS:BOOL=ON' "$build/CMakeCache.txt" && echo yes || echo no)
expected=(libespalier-dev espalier-tools)
[ "$shared" = no ] || expected+=(libespalier0.1)
unpacked="$work/root"
for name in "${expected[@]}"; do
  package=$(find "$work/packages" -maxdepth 1 -name "${name}_*.deb")
  [ -f "$package" ] || fail "there is no package $name"
  dpkg-deb -f "$package" Package Version Architecture Depends
  dpkg-deb -x "$package" "$unpacked"
  [ -f "$unpacked/usr/share/doc/$name/copyright" ] || fail "$name has no copyright file"
  [ "$shared" = no ] || [ "$name" = libespalier0.1 ] || dpkg-deb -f "$package" Depends | grep -q 'libespalier0.1 (= ' ||
    fail "$name does not depend on the library"
  if command -v lintian >/dev/null; then
    # The project has no address of its own.
    lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$package"
  fi
done
[ -z "$(find "$unpacked/usr/bin" "$unpacked/usr/lib" -name '*test*' -o -name '*.cpp')" ] || fail "packages have what is for tests"

libraries=$(dirname "$(find "$unpacked/usr" -name espalier.pc)")/..
export LD_LIBRARY_PATH="$libraries"
for program in run train inspect; do
  "$unpacked/usr/bin/espalier-$program" --version
  [ -f "$unpacked/usr/share/man/man1/espalier-$program.1.gz" ] || fail "espalier-$program has no manual page"
done
"$unpacked/usr/bin/espalier-inspect" "$root/tests/figures/version_1.plan" | grep '1 matmul' >/dev/null || fail "a plan is not shown"

use_unpacked() {
  echo "The packages are not installed: $*."
  "$root/tests/consumer/run.sh" find_package "$unpacked/usr"
  exit
}
[ "$(id -u)" -eq 0 ] || use_unpacked "that needs root"
for package in "$work"/packages/*.deb; do
  name=$(dpkg-deb -f "$package" Package)
  if dpkg-query --show "$name" >/dev/null 2>&1; then use_unpacked "there is a $name already"; fi
done
install() { DEBIAN_FRONTEND=noninteractive apt-get install --no-install-recommends "$@" "$work"/packages/*.deb; }
plan=$(install --simulate) || use_unpacked "apt-get does not find what they depend on"
mapfile -t new < <(sed -nE 's/^Inst ([^ ]+) \(.*/\1/p' <<<"$plan") # with what they depend on
unset LD_LIBRARY_PATH
trap 'dpkg --purge "${new[@]}"; rm -rf "$work"' EXIT
# Images of Debian for containers leave manual pages out.
install --yes -o 'DPkg::Options::=--path-include=/usr/share/man/*' -o 'DPkg::Options::=--path-include=/usr/share/doc/*'
for program in run train inspect; do
  "espalier-$program" --help | grep "espalier-$program" >/dev/null || fail "espalier-$program does not show its help"
  if command -v man >/dev/null; then
    MANWIDTH=100 man "espalier-$program" | grep "^NAME" >/dev/null || fail "the manual page of espalier-$program is not shown"
  fi
done
espalier-inspect "$root/tests/figures/version_1.plan" | grep '1 matmul' >/dev/null || fail "a plan is not shown by what is installed"
"$root/tests/consumer/run.sh" find_package /usr
trap 'rm -rf "$work"' EXIT
dpkg --purge "${new[@]}"
left=$(find /usr/bin /usr/lib /usr/include /usr/share -iname '*espalier*')
[ -z "$left" ] || fail "removed packages have left: $left"
