#!/usr/bin/env python3
"""Build the wheelhouse: everything that hosts without Internet get from the control machine.

Examples:
  make wheelhouse                                          every kind of host
  scripts/wheelhouse.py --targets trixie-arm64             Pis with Raspberry Pi OS of 2025, 64 bit
  scripts/wheelhouse.py --targets bookworm-amd64 --bench   with what the lab host needs
  scripts/wheelhouse.py --verify                           is the existing one still complete?

A target is a release of Debian or Ubuntu and an architecture: bookworm (Python 3.11), trixie (3.13)
or noble (3.12), and amd64, arm64 or armhf. Debian packages come from where this machine's apt gets
its own, with the release and the architecture replaced; neither root nor the architecture is
needed, and the state of apt does not change.

Exit codes: 0 good, 1 something is missing or broken, 2 wrong use.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path += [str(HERE), str(ROOT / "ansible/plugins/module_utils")]
# ruff: noqa: E402
import deb_cache
from wheelhouse_index import FORMAT, INDEX, WheelhouseError, check, check_all, read_index, sha256_of

PYTHON = {"bookworm": "3.11", "trixie": "3.13", "noble": "3.12"}
GLIBC = {"bookworm": 36, "trixie": 41, "noble": 39}
MACHINE = {"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l"}
OLDEST_GLIBC = {"amd64": 5, "arm64": 17, "armhf": 17}
TARGETS = [f"{release}-{architecture}" for release in PYTHON for architecture in MACHINE]

# What a host may be asked to run: name of the set -> what pip is asked for.
SETS = {"program": "mqtick", "gpiod": "gpiod", "pigpio": "pigpio"}
# What runs as a service comes from a list of files with their SHA-256.
HASHED = {"program": "service", "gpiod": "gpiod", "pigpio": "pigpio"}
BENCH_SETS = {"lab": "mqtick[lab] pyusb", "analysis": "mqtick[analysis]"}
# There is no wheel for these, and the rest of the wheelhouse is of use without them.
NO_WHEEL = {
    "armhf": {
        "gpiod": "gpiod has no wheel for 32-bit ARM: pins are driven by gpiomem or pigpio there",
        "lab": "the bench's packages have no wheels for 32-bit ARM: use a 64-bit lab host",
        "analysis": "the reports' packages have no wheels for 32-bit ARM: use a 64-bit lab host",
    }
}


def say(text: str) -> None:
    """Show progress."""
    print(text, flush=True)


# ---- wheels -------------------------------------------------------------------------------------
def pip(*arguments: str, **environment: str) -> str:
    """Run pip, and return what it printed."""
    constraints = (ROOT / "constraints.txt").as_uri()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PIP_CONSTRAINT": constraints} | environment,
    )
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise WheelhouseError(" ".join(words[-2:]) or done.stderr.strip()[-500:])
    return done.stdout


def hashed(name: str) -> tuple[str, str]:
    """Return pip's options for a list of files, the only ones that it may take."""
    return "--require-hashes", f"--requirement={ROOT / 'requirements' / name}.txt"


def platform_of(target: str) -> list[str]:
    """Return pip's options that make it choose for a target instead of for this machine."""
    release, architecture = target.split("-")
    machine = MACHINE[architecture]
    tags = [
        f"manylinux_2_{minor}_{machine}"
        for minor in range(GLIBC[release], OLDEST_GLIBC[architecture] - 1, -1)
    ]
    tags += [f"manylinux2014_{machine}", f"manylinux1_{machine}", f"linux_{machine}"]
    return [
        f"--python-version={PYTHON[release]}",
        "--implementation=cp",
        "--only-binary=:all:",
        *(f"--platform={tag}" for tag in tags),
    ]


def build_program(wheels: Path) -> Path:
    """Build the wheel of this checkout."""
    say("building the wheel of mqtick")
    with tempfile.TemporaryDirectory() as tools:
        pip("install", "--quiet", f"--target={tools}", *hashed("build"))
        build = ("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}")
        pip(*build, str(ROOT), PYTHONPATH=tools)
    return next(wheels.glob("mqtick-*.whl"))


def requirements(wanted: str, program: Path) -> list[str]:
    """Return what pip is asked for, with this checkout's own wheel for mqtick."""
    return [word.replace("mqtick", str(program), 1) for word in wanted.split()]


def fetch_set(target: str, name: str, wanted: list[str], wheels: Path) -> list[str]:
    """Fetch the wheels of a set; returns their file names, as pip finds them without an index."""
    where = platform_of(target)
    files = hashed(HASHED[name]) if name in HASHED else wanted
    pip("download", "--quiet", *where, f"--dest={wheels}", f"--find-links={wheels}", *files)
    with tempfile.TemporaryDirectory() as nowhere:
        offline = ["--dry-run", "--ignore-installed", "--no-index", f"--find-links={wheels}"]
        told = pip(
            "install", "--quiet", "--report=-", *offline, *where, f"--target={nowhere}", *wanted
        )
    chosen = json.loads(told)["install"]
    return sorted(one["download_info"]["url"].rsplit("/", 1)[1] for one in chosen)


def fetch_wheels(target: str, sets: dict[str, str], program: Path) -> dict[str, Any]:
    """Fetch all wheels of a target; returns its part of the index."""
    release, architecture = target.split("-")
    missing = {name: why for name, why in NO_WHEEL.get(architecture, {}).items() if name in sets}
    found = {}
    for name in sorted(sets.keys() - missing.keys()):
        say(f"{target}: wheels of {name}")
        try:
            wanted = requirements(sets[name], program)
            found[name] = fetch_set(target, name, wanted, program.parent)
        except WheelhouseError as error:
            raise WheelhouseError(f"{target}: no wheels for {sets[name]}: {error}") from error
    for why in missing.values():
        say(f"{target}: {why}")
    return {"python": PYTHON[release], "sets": found, "missing": missing}


# ---- the whole ----------------------------------------------------------------------------------
def build(folder: Path, targets: list[str], required: bool, bench: bool, before: Path) -> None:
    """Fill an empty folder with a wheelhouse; Debian packages that `before` has are not fetched.

    `required` makes it a failure that a target has no Debian packages; else the index says why.
    """
    wheels = folder / "wheels"
    wheels.mkdir()
    program = build_program(wheels)
    say("fetching pip")
    pip("download", "--quiet", "--only-binary=:all:", f"--dest={wheels}", *hashed("pip"))
    index: dict[str, Any] = {"format": FORMAT, "program": program.name, "targets": {}}
    index["pip"] = next(wheels.glob("pip-*.whl")).name
    sets = SETS | (BENCH_SETS if bench else {})
    for target in targets:
        entry = fetch_wheels(target, sets, program)
        try:
            entry["debs"], left_out = deb_cache.fetch(
                target, folder / "debs" / target, bench, before, say
            )
            entry["missing"] |= left_out
        except deb_cache.NoDebsError as error:
            if required:
                raise WheelhouseError(f"{target}: {error}") from error
            say(f"{target}: {error}")
            entry["debs"], entry["missing"]["debs"] = [], str(error)
        index["targets"][target] = entry
    index["wheels"] = {
        path.name: {"sha256": sha256_of(path), "size": path.stat().st_size}
        for path in sorted(wheels.iterdir())
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    check_all(folder)


def old(folder: Path) -> Path:
    """Return where a wheelhouse waits for the moment in which the new one takes its name."""
    return folder.with_name(folder.name + ".old")


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Give a temporary folder that replaces `folder` when all went well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if old(folder).exists() and not folder.exists():  # an earlier run was killed in that moment
        old(folder).rename(folder)
    fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.new-", dir=folder.parent))
    try:
        fresh.chmod(0o755)
        yield fresh
        shutil.rmtree(old(folder), ignore_errors=True)
        if folder.exists():
            folder.rename(old(folder))
        fresh.rename(folder)
        shutil.rmtree(old(folder), ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def summary(folder: Path) -> str:
    """Say what a wheelhouse holds."""
    index = read_index(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    lines = [f"{folder}: {size / 1e6:.1f} MB, {index['program']}, {len(index['wheels'])} wheels"]
    for target, entry in index["targets"].items():
        debs = sum(one["size"] for one in entry["debs"])
        without = f"; without {', '.join(sorted(entry['missing']))}" if entry["missing"] else ""
        lines.append(f"  {target:15} {len(entry['debs']):4} .deb, {debs / 1e6:5.1f} MB{without}")
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    """Describe the command line."""
    about, examples = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=about, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "wheelhouse", help="where (default: %(default)s)"
    )
    parser.add_argument(
        "--targets", help=f"separated by commas; default: all of {', '.join(TARGETS)}"
    )
    parser.add_argument(
        "--bench", action="store_true", help="add what the lab and monitoring hosts need"
    )
    parser.add_argument("--verify", action="store_true", help="check what is there, fetch nothing")
    return parser


def main(words: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = arguments()
    options = parser.parse_args(words)
    asked = options.targets.split(",") if options.targets else None
    if unknown := sorted(set(asked or ()) - set(TARGETS)):
        parser.error(f"unknown target {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    folder = options.folder.absolute()
    try:
        if options.verify:
            for target in asked or read_index(folder)["targets"]:
                check(folder, target)
        else:
            with replacing(folder) as fresh:
                build(fresh, asked or TARGETS, bool(asked), options.bench, folder)
        say(summary(folder))
    except (WheelhouseError, OSError) as error:
        kept = "" if options.verify else f" {folder} is as it was before."
        print(f"wheelhouse: {error}.{kept}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"wheelhouse: interrupted; {folder} is as it was before.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
