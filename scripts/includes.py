"""The project's sources and what they include: shared by the layer check and lint."""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("rlx", "tools", "tests", "bench", "examples", "python")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def sources():
    """Every C++ file of the project, as paths relative to the root."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".def")
    )


@functools.lru_cache(maxsize=None)
def text_of(file):
    return (ROOT / file).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=None)
def includes_of(file):
    """The quoted includes of a file, in order."""
    return tuple(INCLUDE.findall(text_of(file)))


def closure_of(file):
    """The file and all project files it includes, directly or not."""
    seen, todo = set(), [file]
    while todo:
        current = todo.pop()
        if current in seen or not (ROOT / current).is_file():
            continue
        seen.add(current)
        todo.extend(includes_of(current))
    return sorted(seen)
