#!/usr/bin/env python3
"""Rewrite requirements/*.txt: what runs as a service and builds it, each file with its SHA-256.

Run it after a change of constraints.txt, which has the versions; pip gets the files from where it
is configured to. `scripts/install.sh` and `scripts/wheelhouse.py` install from these lists, and pip
takes no file that is not in them (--require-hashes).
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
# ruff: noqa: E402
from wheelhouse import NO_WHEEL, ROOT, TARGETS, WheelhouseError, pip, platform_of, say
from wheelhouse_index import sha256_of

FOLDER = ROOT / "requirements"
LISTS = {
    "service": ["paho-mqtt"],
    "gpiod": ["gpiod"],
    "pigpio": ["pigpio"],
    "build": [
        *("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"),
        "setuptools",  # for gpiod where it has no wheel
    ],
    "bench": ["pyvisa", "pyvisa-py"],
    "manuals": ["argparse-manpage", "shtab"],
    "pip": ["pip"],
}
COMPILED = {"gpiod"}
NO_WHEEL_AT_ALL = {"argparse-manpage"}
HEAD = "# By scripts/requirements.py: versions from constraints.txt, and all that pip may take.\n"


def versions() -> dict[str, str]:
    """Return the version of each package in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", text, re.MULTILINE))


def name_of(file: Path) -> str:
    """Return the package that a wheel or a source archive belongs to."""
    return re.sub(r"[-_.]+", "-", re.split(r"-\d", file.name)[0]).lower()


def fetch(folder: Path) -> None:
    """Fetch the wheels for all kinds of host, and sources of packages that lack one."""
    known = versions()
    names = {name: f"{name}=={known[name]}" for listed in LISTS.values() for name in listed}
    download = ("download", "--quiet", "--no-deps", f"--dest={folder}")
    for target in TARGETS:
        without = NO_WHEEL_AT_ALL | NO_WHEEL.get(target.split("-")[1], {}).keys()
        say(f"{target}: {', '.join(names.keys() - without)}")
        wanted = [pin for name, pin in names.items() if name not in without]
        pip(*download, *platform_of(target), *wanted)
    for name in COMPILED | NO_WHEEL_AT_ALL:
        say(f"sources of {name}")
        pip(*download, f"--no-binary={name}", names[name])


def main() -> int:
    """Run the command line; returns the exit code."""
    hashes: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fetch(Path(folder))
        except WheelhouseError as error:
            print(f"requirements: {error}. Nothing was written.", file=sys.stderr)
            return 1
        for file in sorted(Path(folder).iterdir()):
            hashes[name_of(file)].append(sha256_of(file))
    known = versions()
    FOLDER.mkdir(exist_ok=True)
    for title, names in LISTS.items():
        lines = [
            f"{name}=={known[name]}"
            + "".join(f" \\\n    --hash=sha256:{one}" for one in hashes[name])
            for name in names
        ]
        (FOLDER / f"{title}.txt").write_text(HEAD + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
