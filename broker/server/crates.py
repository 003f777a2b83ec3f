"""Make Cargo.lock from crates.txt, or crates.txt from Cargo.lock.

crates.txt says which version of each crate we build with, and its checksum. A lock file says that
too, but it names the index that it was made with; another machine may have another.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def locked() -> set[tuple[str, str, str]]:
    """Return name, version and checksum of each crate in Cargo.lock."""
    packages = tomllib.loads((HERE / "Cargo.lock").read_text())["package"]
    return {(one["name"], one["version"], one["checksum"]) for one in packages if "source" in one}


def wanted() -> set[tuple[str, str, str]]:
    """Return what crates.txt says."""
    name, version, checksum = range(3)
    lines = [line.split() for line in (HERE / "crates.txt").read_text().splitlines()]
    return {(line[name], line[version], line[checksum]) for line in lines if line[0] != "#"}


def is_whole() -> bool:
    """Return whether Cargo.lock names all that our own crates use."""
    asked = ["cargo", "metadata", "--quiet", "--locked", "--format-version", "1"]
    return subprocess.run(asked, cwd=HERE, capture_output=True, check=False).returncode == 0


def series(version: str) -> str:
    """Return what two versions share between which cargo chooses only one."""
    parts = version.split(".")
    return parts[0] if parts[0] != "0" else ".".join(parts[:2])


def lock() -> None:
    """Make Cargo.lock; exit with the difference where it is not what crates.txt says."""
    if (HERE / "Cargo.lock").exists() and locked() == wanted() and is_whole():
        return
    (HERE / "Cargo.lock").unlink(missing_ok=True)
    subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=HERE, check=True)
    want = {(name, series(version)): version for name, version, _ in wanted()}
    for name, version, _ in sorted(locked()):
        precise = want.get((name, series(version)), version)
        if precise != version:
            update = ["cargo", "update", "--quiet", f"{name}@{version}", "--precise", precise]
            subprocess.run(update, cwd=HERE, check=True)
    if difference := sorted(locked() ^ wanted()):
        lines = "\n".join(" ".join(one) for one in difference)
        sys.exit(f"crates.txt and what cargo chose differ:\n{lines}")


def write() -> None:
    """Write crates.txt from Cargo.lock."""
    head = "# name version checksum (SHA-256): made by `python3 crates.py write`\n"
    lines = "".join(" ".join(one) + "\n" for one in sorted(locked()))
    (HERE / "crates.txt").write_text(head + lines)


if __name__ == "__main__":
    write() if sys.argv[1:] == ["write"] else lock()
