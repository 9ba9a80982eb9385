#!/usr/bin/env bash
# Installs rlx, static and shared, and builds and runs tests/install against each by find_package.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${1:-build/install}
jobs=${JOBS:-$(nproc)}

# Shows what a command printed only if it fails.
quietly() {
  "$@" > "$work/log" 2>&1 || { cat "$work/log"; echo "failed: $*" >&2; exit 1; }
}

mkdir -p "$work"
for kind in static shared; do
  preset=release
  [[ $kind == shared ]] && preset=shared
  build=$work/$kind/build prefix=$work/$kind/moved
  rm -rf "$work/$kind/first" "$prefix" "$work/$kind/consumer"
  quietly cmake --preset $preset -B "$build" -DRLX_TESTS=OFF -DRLX_TOOLS=OFF -DRLX_BENCH=OFF \
    -DRLX_EXAMPLES=OFF
  quietly cmake --build "$build" -j "$jobs"
  quietly cmake --install "$build" --prefix "$work/$kind/first"
  mv "$work/$kind/first" "$prefix"   # the package must not remember where it was installed
  if grep -rqF "$root" "$prefix"/lib/*/cmake "$prefix"/lib/cmake 2> /dev/null; then
    echo "install: the $kind package names the source folder" >&2
    exit 1
  fi
  # Every installed header must find all that it includes.
  (cd "$prefix/include" && find rlx -name '*.h' -printf '#include "%p"\n') > "$work/headers.cc"
  quietly g++ -std=c++20 -fsyntax-only -I "$prefix/include" "$work/headers.cc"
  quietly cmake -S tests/install -B "$work/$kind/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$(realpath "$prefix")"
  quietly cmake --build "$work/$kind/consumer"
  "$work/$kind/consumer/consumer"
  echo "install: $kind package works"
done
