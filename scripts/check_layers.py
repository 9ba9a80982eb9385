"""Checks that includes only point downwards:

    base <- ir <- ops <- transform, compile <- runtime <- backends, io, nn

transform and compile do not know each other, no backend includes another, and only tests, tools
and the test library see backend/reference (the oracle) and testing.
"""
import re
import sys

from includes import ROOT, includes_of, sources, text_of

BELOW_RUNTIME = {"base", "ir", "ops", "transform", "compile"}
BELOW_BACKENDS = {"base", "ir", "ops", "compile", "runtime"}
# What each layer may include besides itself.
ALLOWED = {
    "base": set(),
    "ir": {"base"},
    "ops": {"base", "ir"},
    "transform": {"base", "ir", "ops"},
    "compile": {"base", "ir", "ops"},
    "runtime": BELOW_RUNTIME,
    "backend/reference": BELOW_BACKENDS,
    "backend/cpu": BELOW_BACKENDS,
    "backend/gpu": BELOW_BACKENDS,
    "io": BELOW_RUNTIME | {"runtime"},
    "nn": BELOW_RUNTIME | {"runtime", "io"},
}
ORACLE = {"testing", "backend/reference"}
FREE = {"testing", "tools", "tests", "bench", "examples", "python"}  # may include anything
TARGET_INCLUDE = re.compile(r'^[ \t]*#[ \t]*define[ \t]+HWY_TARGET_INCLUDE[ \t]+"([^"]+)"', re.M)


def layer_of(file):
    parts = file.split("/")
    if parts[0] != "rlx":
        return parts[0]
    if len(parts) == 2:
        return "top"  # rlx/rlx.h and the like: the public face, above all layers
    return "/".join(parts[1:3]) if parts[1] == "backend" else parts[1]


def problem(file, include):
    """Why `file` may not include `include`, or None."""
    if include.startswith("hwy/"):
        return None
    if not (ROOT / include).is_file():
        return "is not the full path of a project file"
    source, target = layer_of(file), layer_of(include)
    if source == target or source in FREE:
        return None
    if file.endswith("_samples.cc") and target == "testing":
        return None  # samples are part of the test library, only kept beside their op
    if source == "top":
        return "is test-only" if target in ORACLE else None
    if source not in ALLOWED:
        return f"{source} has no place in the layers: add it to scripts/check_layers.py"
    if target not in ALLOWED[source]:
        return f"{source} must not include {target}"
    return None


def main():
    failures = 0
    files = [file for file in sources() if not file.startswith("tests/install/")]
    for file in files:
        for include in includes_of(file):
            reason = problem(file, include)
            if reason:
                print(f'{file}: "{include}": {reason}')
                failures += 1
        for include in TARGET_INCLUDE.findall(text_of(file)):
            if include != file:
                print(f'{file}: HWY_TARGET_INCLUDE names "{include}" instead of this file')
                failures += 1
    print(f"layers: {len(files)} files, {failures} problems")
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main())
