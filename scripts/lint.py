"""Runs clang-tidy on the project's sources; any warning fails.

A file that passed is skipped until it, a header it includes, its flags or .clang-tidy change.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import subprocess
import sys

from includes import FOLDERS, ROOT, closure_of, text_of

CLANG_TIDY = "clang-tidy-14"


@functools.lru_cache(maxsize=None)
def rules():
    """All configuration files of clang-tidy."""
    files = [ROOT / ".clang-tidy"]
    for folder in FOLDERS:
        files += sorted((ROOT / folder).rglob(".clang-tidy"))
    return b"".join(file.read_bytes() for file in files)


def key_of(file, command):
    digest = hashlib.sha256(command.encode())
    digest.update(rules())
    for part in closure_of(file):
        digest.update(text_of(part).encode())
    return digest.hexdigest()


def check(file, build):
    """The warnings of one file, or an empty string."""
    result = subprocess.run(
        [CLANG_TIDY, "-p", str(build), "--quiet", "--warnings-as-errors=*",
         "--extra-arg=-Wno-unknown-warning-option", file],  # the database holds g++'s options
        cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stdout or result.stderr or f"{file}: {CLANG_TIDY} failed silently\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="folder of compile_commands.json")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", help="only these (relative to the root)")
    args = parser.parse_args()

    build = (ROOT / args.build).resolve()
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
            commands[path.relative_to(ROOT).as_posix()] = entry["command"]
    files = args.files or sorted(commands)
    if not files:
        print("lint: no sources in the compilation database", file=sys.stderr)
        return 1

    passed = build / "lint-passed"
    passed.mkdir(exist_ok=True)
    todo = {}
    for file in files:
        stamp = passed / key_of(file, commands[file])
        if not stamp.exists():
            todo[file] = stamp

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(check, file, build): file for file in todo}
        for future in concurrent.futures.as_completed(futures):
            output = future.result()
            if output:
                failures += 1
                print(output, end="", flush=True)
            else:
                todo[futures[future]].touch()
    print(f"lint: {len(files)} files, {len(todo)} checked, {failures} with warnings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
