"""Which licences the broker's crates have: refuse what is not permissive, write what to ship.

licences.py                              fails where a crate's licence is not in PERMISSIVE, or its
                                         authors took the version back
licences.py copyright TARGET             prints the copyright file of the Debian package: the
                                         crates in its programs for that target (rustc's
                                         name of it), with the texts of their licences
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = ("mqtick-broker", "mqtick-join", "mqtick-load", "mqtick-accelerate")
PERMISSIVE = (
    # The first one that a crate offers is the one that we take.
    "Apache-2.0",
    "MIT",
    "ISC",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
)
Package = dict[str, Any]


class LicenceError(Exception):
    """A licence that we do not take, or that cannot be read."""


def taken(expression: str) -> set[str]:
    """Return which licences we take of an SPDX expression; `/` is the `or` of old crates."""
    words = re.findall(r"[()]|[^\s()/]+", expression.replace("/", " OR "))

    def alternatives() -> set[str]:
        offers = [together()]
        while words[:1] == ["OR"]:
            words.pop(0)
            offers.append(together())
        good = [one for one in offers if one <= set(PERMISSIVE)]
        if not good:
            raise LicenceError(f"'{expression}' offers no licence of {', '.join(PERMISSIVE)}")
        return min(good, key=lambda one: [PERMISSIVE.index(name) for name in sorted(one)])

    def together() -> set[str]:
        all_of = single()
        while words[:1] == ["AND"]:
            words.pop(0)
            all_of |= single()
        return all_of

    def single() -> set[str]:
        name = words.pop(0) if words else ")"
        if name == "(":
            inner = alternatives()
            if words[:1] != [")"]:
                raise LicenceError(f"'{expression}' cannot be read")
            words.pop(0)
            return inner
        if name in (")", "OR", "AND", "WITH"):
            raise LicenceError(f"'{expression}' cannot be read")
        if words[:1] == ["WITH"]:  # an exception only allows more, but it is another licence
            name = " ".join((name, words.pop(0), words.pop(0) if words else "?"))
        return {name}

    found = alternatives()
    if words:
        raise LicenceError(f"'{expression}' cannot be read")
    return found


def metadata(*arguments: str) -> dict[str, Any]:
    """Return what cargo knows about all crates."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", *arguments]
    command += ["--features", "mqtick-accelerate/kernel"]
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def refused(packages: list[Package]) -> list[str]:
    """Return a sentence for each crate that we may not use, those for tests and tools too."""
    wrong = []
    for one in packages:
        try:
            taken(one["license"] or "")
        except LicenceError as error:
            wrong.append(f"{one['name']} {one['version']}: {error}")
    return wrong


def yanked(packages: list[Package], home: Path) -> list[str]:
    """Return a sentence for each crate whose version its authors took back.

    What cargo saw of the index when it chose the versions is in its `home`.
    """
    wrong = []
    for one in filter(lambda one: one["source"], packages):
        name = one["name"].lower()
        parts = {1: "1", 2: "2", 3: f"3/{name[0]}"}.get(len(name), f"{name[:2]}/{name[2:4]}")
        files = list(home.glob(f"registry/index/*/.cache/{parts}/{name}"))
        entries = [part for file in files for part in file.read_bytes().split(b"\0")]
        known = [json.loads(entry) for entry in entries if entry.startswith(b"{")]
        ours = [entry["yanked"] for entry in known if entry["vers"] == one["version"]]
        if not ours:
            wrong.append(f"{name} {one['version']}: cargo keeps nothing of the index about it")
        elif any(ours):
            wrong.append(f"{name} {one['version']}: its authors took it back; choose another one")
    return wrong


def linked(found: dict[str, Any]) -> list[Package]:
    """Return the crates of others whose code is in the programs; not those that only build it."""
    packages = {one["id"]: one for one in found["packages"]}
    needs = {one["id"]: one["deps"] for one in found["resolve"]["nodes"]}
    waiting = [one["id"] for one in found["packages"] if one["name"] in PROGRAMS]
    seen: set[str] = set()
    while waiting:
        here = waiting.pop()
        is_macro = any("proc-macro" in part["kind"] for part in packages[here]["targets"])
        if here in seen or is_macro:
            continue
        seen.add(here)
        for need in needs[here]:
            if any(kind["kind"] is None for kind in need["dep_kinds"]):
                waiting.append(need["pkg"])
    others = [packages[one] for one in seen if packages[one]["source"]]
    return sorted(others, key=lambda one: (one["name"], one["version"]))


def texts(package: Package) -> list[str]:
    """Return the licence texts of a crate, but for Apache's, which every Debian system has."""
    if taken(package["license"]) == {"Apache-2.0"}:
        return []
    folder = Path(package["manifest_path"]).parent
    files = sorted(one for one in folder.rglob("*") if re.match("(?i)licen[cs]e|copying", one.name))
    found = [one.read_text(encoding="utf-8", errors="replace").strip() for one in files]
    if not found:
        raise LicenceError(f"{package['name']} {package['version']} brings no text of its licence")
    return [text for text in found if "Version 2.0, January 2004" not in text]


def indented(text: str) -> str:
    """Return a text as a field of a Debian control file."""
    return "".join(f" {line.rstrip()}\n" if line.strip() else " .\n" for line in text.splitlines())


def copyright_file(packages: list[Package]) -> str:
    """Return the copyright file: first a line for each crate, then the texts."""
    crates, parts = "", ""
    for one in packages:
        name = f"{one['name']} {one['version']}"
        licence = " and ".join(sorted(taken(one["license"])))
        crates += f"   {name}: {licence}{_offered(one['license'], licence)}\n"
        for text in texts(one):
            holders = re.findall(r"(?im)^\W*copyright\s+(?:\(c\)\s*)?(.*\d{4}.*)$", text)
            who = "; ".join(dict.fromkeys(holders)) or ", ".join(one["authors"]) or "its authors"
            parts += f"\nFiles: {name.replace(' ', '-')}/*\nCopyright: {who}\n"
            parts += f"License: {licence}\n{indented(text)}"
    return HEAD.format(crates=crates) + parts


def _offered(expression: str, licence: str) -> str:
    return "" if expression in (licence, licence.replace("and", "AND")) else f" (of {expression})"


HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: mqtick
Comment:
 The programs are linked statically. They hold, each under the licence that is named first:
 .
{crates} .
 They also hold parts of Rust's standard library (Apache-2.0 or MIT, copyright The Rust Project
 Developers), of the GNU C Library (LGPL-2.1 or newer, copyright Free Software Foundation, Inc.)
 and of GCC's libraries (GPL-3 or newer with the GCC Runtime Library Exception). `make
 broker-package` in the source builds the programs anew, with any other version of those libraries.

Files: *
Copyright: The mqtick authors, and for the crates their authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0, and that of the
 GNU licences in /usr/share/common-licenses/LGPL-2.1 and /usr/share/common-licenses/GPL-3.
"""


def main() -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case []:
            packages = metadata()["packages"]
            home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
            if wrong := refused(packages) + yanked(packages, home):
                sys.exit("\n".join(wrong))
        case ["copyright", target]:
            print(copyright_file(linked(metadata("--filter-platform", target))), end="")
        case _:
            sys.exit("usage: licences.py [copyright TARGET]")


if __name__ == "__main__":
    main()
