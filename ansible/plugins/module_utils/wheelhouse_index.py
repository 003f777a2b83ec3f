"""The wheelhouse: the folder on the control machine from which hosts get what they install.

Everything is checked here, before anything is copied to a host: a wheel that is missing, truncated
or of the wrong version stops with a sentence on the control machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FORMAT = 1
INDEX = "index.json"
REMEDY = "make it with 'make wheelhouse' in the checkout of mqtick"
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~%-]*")

# What apt wants to know of a Debian package.
FIELDS = (
    *("Package", "Version", "Architecture", "Multi-Arch", "Pre-Depends", "Depends", "Provides"),
    *("Conflicts", "Breaks", "Replaces"),
)


class WheelhouseError(Exception):
    """The wheelhouse cannot be used, and why."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_index(folder: Path) -> dict[str, Any]:
    """Read the index of a wheelhouse."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise WheelhouseError(f"{path} is not there: {REMEDY}") from error
    except (OSError, ValueError) as error:
        raise WheelhouseError(f"{path} cannot be read ({error}): {REMEDY}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise WheelhouseError(f"{path} is of another version of mqtick: {REMEDY}")
    if not _is_whole(index):
        raise WheelhouseError(f"{path} is broken: {REMEDY}")
    return index


def _is_whole(index: dict[str, Any]) -> bool:
    """Tell whether an index has the parts that are used, each of its kind."""
    described, targets = index.get("wheels"), index.get("targets")
    if not isinstance(described, dict) or not isinstance(targets, dict):
        return False
    kinds = {"sets": dict, "missing": dict, "debs": list}
    return (
        isinstance(index.get("pip"), str)
        and all(_is_file(one) for one in described.values())
        and all(
            isinstance(entry, dict)
            and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
            and all(isinstance(names, list) for names in entry["sets"].values())
            and all(_is_file(deb) and isinstance(deb.get("file"), str) for deb in entry["debs"])
            for entry in targets.values()
        )
    )


def _is_file(entry: object) -> bool:
    return isinstance(entry, dict) and {"sha256", "size"} <= entry.keys()


def target_of(index: dict[str, Any], target: str) -> dict[str, Any]:
    """Return what the index has for a kind of host, such as bookworm-arm64."""
    if target not in index["targets"]:
        known = ", ".join(index["targets"]) or "nothing"
        raise WheelhouseError(
            f"the wheelhouse has nothing for {target}, only for {known}: {REMEDY}"
        )
    entry: dict[str, Any] = index["targets"][target]
    return entry


def _checked(folder: Path, name: str, entry: dict[str, Any]) -> Path:
    """Return the path of a file that is as the index says."""
    if not FILE_NAME.fullmatch(name):
        raise WheelhouseError(f"the index names a file {name!r}, which is not one: {REMEDY}")
    path = folder / name
    if not path.is_file():
        raise WheelhouseError(f"{path} is missing: {REMEDY}")
    if (size := path.stat().st_size) != entry["size"]:
        raise WheelhouseError(f"{path} has {size} bytes, not {entry['size']}: {REMEDY}")
    if sha256_of(path) != entry["sha256"]:
        raise WheelhouseError(f"{path} is not what was put there (SHA-256 differs): {REMEDY}")
    return path


def wheels(
    folder: Path, target: str, sets: list[str], optional: list[str] | None = None
) -> dict[str, Any]:
    """Return the wheels of sets ("program", "gpiod", "lab", "analysis") for a target, all checked.

    `pip` is the path of pip's own wheel, `files` are the others, `stamp` is file name ->
    SHA-256 of the others, `left_out` why there is none of an optional set.
    """
    index = read_index(folder)
    entry = target_of(index, target)
    names: set[str] = set()
    there = [name for name in optional or [] if name in entry["sets"]]
    for name in [*sets, *there]:
        if name in entry["missing"]:
            raise WheelhouseError(f"{target}: {entry['missing'][name]}")
        if name not in entry["sets"]:
            raise WheelhouseError(
                f"the wheelhouse has no wheels of '{name}': make it with "
                "'make wheelhouse BENCH=1' in the checkout of mqtick"
            )
        names.update(entry["sets"][name])
    paths = {}
    for name in [index["pip"], *sorted(names)]:
        if name not in index["wheels"]:
            raise WheelhouseError(f"the index names {name} but does not describe it: {REMEDY}")
        paths[name] = _checked(folder / "wheels", name, index["wheels"][name])
    stamp = {name: index["wheels"][name]["sha256"] for name in sorted(names)}
    return {
        "pip": str(paths.pop(index["pip"])),
        "files": [str(path) for path in paths.values()],
        "stamp": stamp,
        "left_out": {
            name: entry["missing"][name] for name in optional or [] if name in entry["missing"]
        },
    }


def debs(folder: Path, target: str) -> list[dict[str, Any]]:
    """Return what the index says about the Debian packages of a target."""
    entry = target_of(read_index(folder), target)
    if "debs" in entry["missing"]:
        raise WheelhouseError(f"{target}: {entry['missing']['debs']}")
    found: list[dict[str, Any]] = entry["debs"]
    return found


def packages_file(debs: Iterable[dict[str, Any]]) -> str:
    """Return entries of the wheelhouse's index as apt reads them."""
    stanzas = []
    for deb in debs:
        lines = [f"{key}: {deb.get(key.lower().replace('-', '_'))}" for key in FIELDS]
        lines = [line for line in lines if not line.endswith((": ", ": None"))]
        lines += [f"Filename: ./{deb['file']}", f"Size: {deb['size']}", f"SHA256: {deb['sha256']}"]
        stanzas.append("".join(f"{line}\n" for line in lines))
    return "\n".join(stanzas)


def deb_path(folder: Path, target: str, deb: dict[str, Any]) -> Path:
    """Return the path of a Debian package that is as the index says."""
    return _checked(folder / "debs" / target, deb["file"], deb)


def check(folder: Path, target: str) -> None:
    """Check everything that a wheelhouse has for a target."""
    entry = target_of(read_index(folder), target)
    found = wheels(folder, target, sorted(entry["sets"]))
    for path in map(Path, [found["pip"], *found["files"]]):
        _check_wheel(path)
    for deb in entry["debs"]:
        deb_path(folder, target, deb)


def _check_wheel(path: Path) -> None:
    """Check that the inside of a wheel is of the version that its name says."""
    name, version = path.name.split("-")[:2]
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(f"{name}-{version}.dist-info/METADATA").decode()
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise WheelhouseError(f"{path} is no wheel of {name} {version} ({error})") from error
    if f"\nVersion: {version}\n" not in text:
        raise WheelhouseError(f"{path} is not of version {version} inside: {REMEDY}")


def check_all(folder: Path) -> None:
    """Check everything that a wheelhouse has."""
    index = read_index(folder)
    for target in index["targets"]:
        check(folder, target)
