"""Print the modules of crates in layers, as layers.toml lists them: `python3 layers.py CRATE...`.

A module of a crate is a file or folder beside its lib.rs, and lib.rs itself, where it does more
than name the others. Tests are no part of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOTS = ("lib", "main")

Module = tuple[str, ...]
Uses = dict[str, set[str]]

COMMENT = re.compile(r"//.*")
TESTS = re.compile(
    r"^#\[cfg\(test\)\]\n(?:#[^\n]*\n)*mod (\w+)(?:;| \{.*?^\})", re.MULTILINE | re.DOTALL
)
TEST = re.compile(r"#\[cfg\(test\)\]\s*.*")  # with the line of which it is an attribute
NOTHING = re.compile(r"(?:\s|#!\[.*\]|(?:pub )?mod \w+;)*")  # but names of modules
LOCAL = re.compile(r"\b(?:crate|super(?:::super)*)::")


def paths(text: str) -> Iterator[Module]:
    """Return the paths that a text begins with: two in `a::{b, c::d}`."""
    head = re.match(r"\s*(?:\w+::)*\w*", text)
    names = tuple(re.findall(r"\w+", head[0])) if head else ()
    rest = text[head.end() :] if head else text
    if not rest.startswith("{"):
        yield names
        return
    depth, start = 0, 1
    for at, letter in enumerate(rest):
        depth += (letter == "{") - (letter == "}")
        if depth == 0 or (letter == "," and depth == 1):
            if part := rest[start:at].strip():
                yield from (names + more for more in paths(part))
            start = at + 1
        if depth == 0:
            return


def modules(crate: str) -> dict[Module, str]:
    """Return the text of each file of a crate by its path, without tests and comments."""
    source = HERE / crate / "src"
    texts: dict[Module, str] = {}
    tests: set[Module] = set()
    for file in sorted(source.rglob("*.rs")):
        path = file.relative_to(source).with_suffix("").parts
        path = path[:-1] if path[-1] == "mod" else path
        text = COMMENT.sub("", file.read_text()).replace(f"mqtick_{crate}::", "crate::")
        folder = () if path[0] in ROOTS else path
        tests |= {(*folder, name) for name in TESTS.findall(text)}
        texts[path] = TEST.sub("", TESTS.sub("", text))
    return {
        path: text
        for path, text in texts.items()
        if path not in tests and not NOTHING.fullmatch(text)
    }


def named(path: Module, text: str) -> Iterator[Module]:
    """Return the paths in the crate that a file names."""
    for start in LOCAL.finditer(text):
        up = start[0].count("super")
        before = path[: len(path) - up] if up else ()
        yield from (before + names for names in paths(text[start.end() :]))
    if path[0] in ROOTS:
        yield from ((name,) for name in re.findall(r"(?<![\w:])(\w+)::", text))


def uses(crate: str, folder: Module = ()) -> Uses:
    """Return which modules each module of a crate, or of a folder in it, uses of that."""
    at = len(folder)
    files = {path: text for path, text in modules(crate).items() if path[:at] == folder != path}
    found: Uses = {path[at]: set() for path in files}
    for path, text in files.items():
        for other in named(path, text):
            is_inside = other[:at] == folder and len(other) > at and other[at] in found
            name = other[at] if is_inside else "lib"
            if name in found and name != path[at]:
                found[path[at]].add(name)
    return found


def reached(found: Uses, start: str) -> set[str]:
    """Return the modules that one uses, and those that these use."""
    seen: set[str] = set()
    left = [start]
    while left:
        new = found[left.pop()] - seen
        seen |= new
        left += new
    return seen


def circles(found: Uses) -> list[set[str]]:
    """Return the sets of modules that all use each other, if only through others."""
    below = {name: reached(found, name) for name in found}
    rings = {frozenset(one for one in below[name] if name in below[one]) for name in found}
    return sorted((set(ring) for ring in rings if ring), key=sorted)


def layers(found: Uses) -> list[list[str]]:
    """Return the modules from top to bottom. Those of a circle are a layer of their own."""
    placed: set[str] = set()
    result: list[list[str]] = []
    rings = {name: ring for ring in circles(found) for name in ring}
    while left := found.keys() - placed:
        ready = {name for name in left if found[name] <= placed | rings.get(name, set())}
        free = ready - rings.keys()
        layer = free or next(rings[name] for name in sorted(left) if rings.get(name, {""}) <= ready)
        result.insert(0, sorted(layer))
        placed |= layer
    return result


if __name__ == "__main__":
    for crate in sys.argv[1:]:
        found = uses(crate)
        rings = circles(found)
        print(f"{crate} = [")
        for layer in layers(found):
            print(f"  {json.dumps(layer if set(layer) in rings else ' '.join(layer))},")
        print("]")
