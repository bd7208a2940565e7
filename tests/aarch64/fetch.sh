#!/usr/bin/env bash
# Fetches Debian's packages for arm64 that the tests need, and prints the folder in the user's cache where they lie. They
# are fetched again after a month; if that is impossible, older ones do.
set -euo pipefail
packages=(libc6-dev libgomp1 libstdc++6 libdnnl-dev libopenblas-openmp-dev libfmt-dev nlohmann-json3-dev libdlpack-dev
  zlib1g-dev libpng-dev libjpeg62-turbo-dev libcli11-dev libonnx-dev libprotobuf-dev libboost-test-dev)

folder=${XDG_CACHE_HOME:-$HOME/.cache}/espalier/arm64
has_them() { [ "$(cat "$folder/names" 2>/dev/null)" = "${packages[*]}" ]; }
if has_them && [ -n "$(find "$folder/names" -mtime -30)" ]; then
  echo "$folder" && exit
fi

apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
# An apt of its own, which knows arm64 alone.
mkdir -p "$apt"/{lists/partial,archives/partial}
: >"$apt/status"
cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Debug::NoLocking "true";
END
fetch() {
  APT_CONFIG=$apt/apt.conf timeout 60 apt-get update -qq &&
    APT_CONFIG=$apt/apt.conf timeout 300 apt-get install --yes -qq --download-only --no-install-recommends "${packages[@]}"
}
if fetch >&2; then
  rm -rf "$folder" && mkdir -p "$folder"
  mv "$apt"/archives/*.deb "$folder"
  echo "${packages[*]}" >"$folder/names" # the last of them: the folder is complete
else
  has_them || { echo "Debian's packages for arm64 cannot be fetched." >&2 && exit 1; }
fi
echo "$folder"
