#!/usr/bin/env bash
# Formats the C++ sources, or with --check fails if that would change any.
set -euo pipefail
cd "$(dirname "$0")/.."

folders=()
for folder in rlx tools tests bench examples python; do
  [[ -d $folder ]] && folders+=("$folder")
done

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run -Werror)
find "${folders[@]}" \( -name '*.cc' -o -name '*.h' \) -print0 |
  xargs -0 -r clang-format-14 "${mode[@]}"
