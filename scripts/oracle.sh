#!/usr/bin/env bash
# oracle.sh [FILTER ...]: compares the float64 reference with NumPy, SciPy and JAX on every sample of
# every op, or of those whose names hold a filter.
# Needs the release build; Python packages go into a virtual environment under build/.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv-oracle
if [ ! -x "$venv/bin/python" ] || ! cmp -s tests/oracle/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --requirement tests/oracle/requirements.txt
  cp tests/oracle/requirements.txt "$venv/requirements.txt"
fi
rm -rf build/oracle
mkdir -p build/oracle
(cd build/oracle && ../release/bin/rlx-conformance export "$@")
"$venv/bin/python" tests/oracle/check_reference.py build/oracle/oracle
