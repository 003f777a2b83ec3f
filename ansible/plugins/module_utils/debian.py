"""Debian packages of a host: what apt says of them, and which of them are there only for us.

What apt would do is not repeated: apt itself decides on the host, also which packages of the
wheelhouse a host without Internet needs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

QUERY = (
    "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${Provides}\t${Pre-Depends}\t"
    "${Depends}\n"
)
# What is half done counts as there: the next run finishes it.
ABSENT = ("not-installed", "config-files")
NAME = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


class DebianError(Exception):
    """The packages cannot be chosen, and why."""


# ---- packages -----------------------------------------------------------------------------------
def relations(text: str) -> list[list[str]]:
    """Parse a field such as Depends: all of the list are needed, of each one alternative.

    Versions are left out: what is installed satisfies what is installed.
    """
    clauses = [map(NAME.match, clause.split("|")) for clause in text.split(",")]
    found = [[one[1] for one in clause if one] for clause in clauses]
    return [names for names in found if names]


@dataclass
class Package:
    """An installed package: what it is called, also by what it provides, and what it needs."""

    names: frozenset[str]
    needs: list[list[str]]

    def satisfies(self, alternatives: Iterable[str]) -> bool:
        """Tell whether it is one of the alternatives of a dependency."""
        return not self.names.isdisjoint(alternatives)


def installed_packages(told: str) -> dict[str, Package]:
    """Read what `dpkg-query --show --showformat QUERY` printed."""
    found = {}
    for line in told.splitlines():
        status, name, _, _, provides, *needs = line.split("\t")
        if status not in ABSENT:
            offered = (one for names in relations(provides) for one in names)
            wanted = [names for text in needs for names in relations(text)]
            found[name] = Package(frozenset((name, *offered)), wanted)
    return found


# ---- what a host without Internet needs ---------------------------------------------------------
def files_needed(
    wanted: Iterable[str], index: str, run: Callable[..., CompletedProcess[str]], more: str = ""
) -> list[str]:
    """Let apt choose which files of an index make this host have the wanted packages.

    Nothing changes: apt gets folders of its own, and `index` is its only source. `run` runs a
    command with variables of its environment; `more` are lines for apt's configuration. Raises
    DebianError with apt's words.
    """
    with tempfile.TemporaryDirectory(prefix="mqtick-") as name:
        folder = Path(name)
        for part in ("lists", "archives"):
            (folder / part / "partial").mkdir(parents=True)
        (folder / "Packages").write_text(index)
        (folder / "sources").write_text(f"deb [trusted=yes] file:{folder} ./\n")
        (folder / "apt.conf").write_text(
            'Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null";\n'
            f'Dir::Etc::sourcelist "{folder}/sources"; Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State::lists "{folder}/lists"; Dir::Cache::archives "{folder}/archives";\n'
            'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache ""; APT::Sandbox::User "root";\n'
            f'Acquire::Languages "none"; APT::Install-Recommends "false";\n{more}'
        )
        for command in (("update",), ("install", "--yes", "--print-uris", *wanted)):
            done = run("apt-get", "-q", *command, APT_CONFIG=f"{folder}/apt.conf")
            if done.returncode != 0:
                words = map(str.strip, (done.stdout + done.stderr).splitlines())
                raise DebianError(" ".join(x for x in words if "Depends:" in x or x[:2] == "E:"))
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("'")]


# ---- what apt says ------------------------------------------------------------------------------
NO_SPACE = ("No space left", "enough free space")
NO_NETWORK = ("resolving", "Could not connect", "Network is unreachable", "Failed to fetch")
UNKNOWN = ("Unable to locate", "no installation candidate")
CLOCK = ("not valid yet", "is expired")
LOCKED = ("locked by another process", "Could not get lock", "Unable to lock")


def what_apt_would_do(told: str) -> tuple[list[str], list[str]]:
    """Read a simulation of apt-get; returns the packages that would come and that would go."""
    words = [line.split() for line in told.splitlines()]
    # What is brought up to date has its old version in brackets.
    came = {one[1] for one in words if one[:1] == ["Inst"] and not one[2].startswith("[")}
    gone = {one[1] for one in words if one[:1] in (["Remv"], ["Purg"])}
    return sorted(came), sorted(gone)


def words_of_apt(words: str) -> str:
    """Return apt's last words, and what to do about them."""
    lines = [line for line in words.splitlines() if line.startswith(("E:", "dpkg: error"))]
    others = [line for line in words.splitlines() if not line.startswith("debconf: ")]
    said = " ".join(lines[-3:]) or " ".join(others)[-400:].strip() or "it gives no reason."
    remedies = {
        LOCKED: "Another program installs packages there: wait until it is done, and run this "
        "again.",
        NO_SPACE: "The disk of this host is full: make room ('apt-get clean' gives some), and run "
        "this again.",
        CLOCK: "The clock of this host is wrong, see fleet_fix_clock.",
        UNKNOWN: "Is the name right, and does this host reach its apt sources? Without a way to "
        "them, make a wheelhouse ('make wheelhouse') and set fleet_offline: true.",
        NO_NETWORK: "This host does not reach its apt sources. Either let it, or make a wheelhouse "
        "('make wheelhouse') and set fleet_offline: true.",
    }
    for signs, remedy in remedies.items():
        if any(sign in words for sign in signs):
            return f"{said} {remedy}"
    return f"{said} Run this again when the cause is removed: it finishes what is half done."


# ---- what may go, and what to take away again ---------------------------------------------------
def time_daemons(installed: dict[str, Package]) -> set[str]:
    """Return which packages steer the clock: they exclude each other."""
    return {name for name, package in installed.items() if package.satisfies(["time-daemon"])}


def with_transitional(going: set[str], installed: dict[str, Package]) -> set[str]:
    """Return these packages and those that need nothing else, so that nothing is lost with them.

    Such as Debian's ntp, which is empty and depends on ntpsec.
    """
    going = set(going)

    def is_lost(alternatives: list[str]) -> bool:
        def gives(name: str) -> bool:
            return installed[name].satisfies(alternatives)

        return any(map(gives, going)) and not any(map(gives, installed.keys() - going))

    while more := {
        name
        for name, package in installed.items()
        if name not in going and package.needs and all(map(is_lost, package.needs))
    }:
        going |= more
    return going


def refusal(going: Iterable[str], may_go: set[str], *, restoring: bool = False) -> str:
    """Return why apt's plan is not for us, and what to do; empty if nothing else is removed."""
    others = ", ".join(sorted(set(going) - may_go))
    if not others:
        return ""
    if restoring:
        return (
            f"apt would also remove {others}, which needs what this collection has installed. "
            "Nothing was removed. If that may go, remove it, and run this again."
        )
    # A library of another version makes apt take away all that is bound to the old one.
    return (
        f"apt would also remove {others}. Nothing was changed. If nothing there needs that, remove "
        "it; else bring the host up to date ('apt-get update' and 'apt-get upgrade') or make a new "
        "wheelhouse, and run this again."
    )


def only_for_us(added: set[str], installed: dict[str, Package]) -> list[str]:
    """Return which of the packages that were added nothing else on the host needs by now."""
    unwanted = {name: installed[name] for name in added if name in installed}
    rest = [package for name, package in installed.items() if name not in unwanted]
    while rest:
        for alternatives in rest.pop().needs:
            givers = [
                name
                for wanted in alternatives
                for name, one in installed.items()
                if one.satisfies([wanted])
            ]
            if givers and all(name in unwanted for name in givers):
                rest.append(unwanted.pop(givers[0]))
    return sorted(unwanted)
