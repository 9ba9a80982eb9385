#!/usr/bin/env bash
# Installs rlx, static and shared, and builds and runs tests/install against each by find_package.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${1:-build/install}
jobs=${JOBS:-$(nproc)}

for kind in static shared; do
  preset=release
  [[ $kind == shared ]] && preset=shared
  build=$work/$kind/build prefix=$work/$kind/moved
  rm -rf "$work/$kind/first" "$prefix" "$work/$kind/consumer"
  cmake --preset $preset -B "$build" -DRLX_TESTS=OFF -DRLX_TOOLS=OFF -DRLX_BENCH=OFF \
    -DRLX_EXAMPLES=OFF > /dev/null
  cmake --build "$build" -j "$jobs" > /dev/null
  cmake --install "$build" --prefix "$work/$kind/first" > /dev/null
  mv "$work/$kind/first" "$prefix"   # the package must not remember where it was installed
  if grep -rqF "$root" "$prefix"/lib/*/cmake "$prefix"/lib/cmake 2> /dev/null; then
    echo "install: the $kind package names the source folder" >&2
    exit 1
  fi
  cmake -S tests/install -B "$work/$kind/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$(realpath "$prefix")" > /dev/null
  cmake --build "$work/$kind/consumer" > /dev/null
  "$work/$kind/consumer/consumer"
  echo "install: $kind package works"
done
