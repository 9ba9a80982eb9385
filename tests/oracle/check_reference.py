#!/usr/bin/env python3
"""Checks the float64 reference against NumPy, SciPy and JAX.

    rlx-conformance export          # writes ./oracle
    check_reference.py oracle       # compares every exported call

Every exported case must be compared: an op without an oracle in oracles/, or a case that an oracle
cannot express, counts as a failure.
"""
import json
import pathlib
import sys

import oracles  # noqa: F401  (registers them)
from oracles.comparison import problem
from oracles.registry import LITERALS, ORACLES, WITH_BODIES, Tensor


def failure(op, case, raw):
    """What is wrong with an exported call, or None."""
    if op not in ORACLES:
        return "no oracle"
    operands = [Tensor(raw, o) for o in case["operands"]]
    results = [Tensor(raw, o) for o in case["results"]]
    try:
        want = ORACLES[op](case["attrs"], operands)
        errors = [problem(op, r.a, w, r.dtype) for r, w in zip(results, want, strict=True)]
    except Exception as e:  # an oracle that cannot express the case is a failure to see
        return f"oracle: {type(e).__name__}: {e}"
    return next((e for e in errors if e), None)


def main(folder):
    total = failed = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        spec = json.loads(path.read_text())
        op = spec["op"]
        if op in LITERALS or op in WITH_BODIES:
            continue
        raw = path.with_suffix(".bin").read_bytes()
        for case in spec["cases"]:
            total += 1
            error = failure(op, case, raw)
            if error:
                failed += 1
                print(f"FAILED {op}/{case['name']}: {error}")
    print(f"{total} cases, {failed} failed")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
