#!/usr/bin/env bash
# Formats the C++ sources, or with --check names those that formatting would change, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

folders=()
for folder in rlx tools tests bench examples python; do
  [[ -d $folder ]] && folders+=("$folder")
done
sources() { find "${folders[@]}" \( -name '*.cc' -o -name '*.h' \) -print0; }

if [[ ${1:-} != --check ]]; then
  sources | xargs -0 -r clang-format-14 -i
  exit
fi
if ! report=$(sources | xargs -0 -r clang-format-14 --dry-run -Werror 2>&1); then
  echo "$report" | sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error:.*/\1 needs formatting (make format)/p' | sort -u
  exit 1
fi
