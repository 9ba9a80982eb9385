#!/usr/bin/env bash
# conformance.sh PROGRAM MODE: rlx-conformance in as many parts at once as there are jobs (JOBS, or
# all processors).
set -euo pipefail
program=$1
mode=$2
jobs=${JOBS:-$(nproc)}

parts=()
for ((i = 1; i <= jobs; ++i)); do
  "$program" "$mode" --part "$i/$jobs" &
  parts+=($!)
done
failed=0
for part in "${parts[@]}"; do
  wait "$part" || failed=1
done
exit "$failed"
