#!/usr/bin/env bash
# Installs what the build needs on Debian 12. Quick when everything is there.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache mold                                 # build
  libhwy-dev libfmt-dev zlib1g-dev                                  # library
  libgtest-dev libbenchmark-dev libcli11-dev                        # tests, benchmarks, tools
  clang-16 libclang-rt-16-dev clang-format-14 clang-tidy-14 binutils make python3      # second compiler, checks
)

if ! command -v dpkg-query > /dev/null; then
  echo "setup: this is no Debian system; install these by hand: ${packages[*]}" >&2
  for tool in cmake ninja; do
    command -v "$tool" > /dev/null || { echo "setup: $tool is missing" >&2; exit 1; }
  done
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
[[ $(id -u) -eq 0 ]] || as_root=(sudo)
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq)
echo "setup: installing ${missing[*]}"
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" > /dev/null
