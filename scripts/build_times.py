"""Builds everything from nothing, without a cache, and prints what took how long.

Fails if one file took longer than 10 s or the whole build longer than 480 s.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LIMIT_S = 10.0
TOTAL_LIMIT_S = 480.0


def object_times(log):
    """(seconds, output) of each object file in a .ninja_log, slowest first."""
    times = {}
    for line in log.read_text().splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            times[output] = (int(end) - int(start)) / 1000.0
    return sorted(((seconds, output) for output, seconds in times.items()), reverse=True)


def quietly(*command):
    """Runs a command whose output matters only if it fails; then that ends the script."""
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stdout + f"\nfailed: {' '.join(map(str, command))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", default="build/times")
    args = parser.parse_args()

    build = ROOT / args.build
    shutil.rmtree(build, ignore_errors=True)
    quietly("cmake", "--preset", "release", "-B", build, "-DRLX_CCACHE=OFF")
    start = time.monotonic()
    quietly("cmake", "--build", build, "-j", str(args.jobs))
    total = time.monotonic() - start

    times = object_times(build / ".ninja_log")
    print(f"{len(times)} objects in {total:.1f} s with {args.jobs} jobs; the slowest:")
    for seconds, output in times[:10]:
        print(f"{seconds:7.2f} s  {output}")
    slow = [output for seconds, output in times if seconds > FILE_LIMIT_S]
    for output in slow:
        print(f"over the limit of {FILE_LIMIT_S:.0f} s: {output}", file=sys.stderr)
    if total > TOTAL_LIMIT_S:
        print(f"the build is over its limit of {TOTAL_LIMIT_S:.0f} s", file=sys.stderr)
    return 1 if slow or total > TOTAL_LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
