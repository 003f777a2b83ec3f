"""Which Debian packages a host without Internet needs: versions, relations, and what follows.

The order of versions and the grammar of relations are those of Debian's policy, sections 5.6.12
and 7.1. What apt would do is not repeated: apt itself decides on the host, from the files that it
gets. Here is decided which files that are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

QUERY = (
    "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${Provides}\t${Pre-Depends}\t"
    "${Depends}\n"
)
# What is half done counts as there: the next run finishes it.
ABSENT = ("not-installed", "config-files")
RELATION = re.compile(
    r"\s*(?P<name>[a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*"
    r"(?:\(\s*(?P<operator><<|<=|=|>=|>>)\s*(?P<version>[^\s)]+)\s*\))?\s*"
)
ALLOWED = {"<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,)}


class DebianError(Exception):
    """The packages cannot be chosen, and why."""


# ---- versions -----------------------------------------------------------------------------------
def _order(character: str) -> int:
    """Return the rank of a character that is no digit: ~ before the end, letters before others."""
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


def _compare_parts(left: str, right: str) -> int:
    """Compare upstream versions or revisions."""
    parts = re.compile(r"(\D*)(\d*)")
    for (text, number), (other_text, other_number) in zip_longest(
        parts.findall(left), parts.findall(right), fillvalue=("", "")
    ):
        for one, other in zip_longest(map(_order, text), map(_order, other_text), fillvalue=0):
            if one != other:
                return -1 if one < other else 1
        if int(number or 0) != int(other_number or 0):
            return -1 if int(number or 0) < int(other_number or 0) else 1
    return 0


def compare_versions(left: str, right: str) -> int:
    """Return -1, 0 or 1, as the left version is lower than, equal to or higher than the right."""

    def split(version: str) -> tuple[int, str, str]:
        epoch, colon, rest = version.partition(":")
        if not colon:
            epoch, rest = "0", version
        upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
        return int(epoch), upstream, revision

    (epoch, upstream, revision), (other_epoch, other, other_revision) = split(left), split(right)
    if epoch != other_epoch:
        return -1 if epoch < other_epoch else 1
    return _compare_parts(upstream, other) or _compare_parts(revision, other_revision)


# ---- packages -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Relation:
    """One alternative of a dependency."""

    name: str
    operator: str = ""
    version: str = ""

    def allows(self, version: str) -> bool:
        """Tell whether a version satisfies it."""
        if not self.operator:
            return True
        return compare_versions(version, self.version) in ALLOWED[self.operator]


def relations(text: str) -> list[list[Relation]]:
    """Parse a field such as Depends: all of the list are needed, of each one alternative."""
    found = []
    for clause in filter(str.strip, text.split(",")):
        alternatives = [RELATION.fullmatch(one) for one in clause.split("|")]
        found.append(
            [Relation(one["name"], one["operator"] or "", one["version"] or "")
             for one in alternatives if one]
        )  # fmt: skip
    return found


@dataclass
class Package:
    """An installed package, or one that could be."""

    name: str
    version: str
    provides: list[Relation]
    needs: list[list[Relation]]
    file: dict[str, object] = field(default_factory=dict)

    def satisfies(self, relation: Relation) -> bool:
        """Tell whether it is what a relation asks for."""
        if self.name == relation.name and relation.allows(self.version):
            return True
        return any(
            one.name == relation.name
            and (not relation.operator or (one.version and relation.allows(one.version)))
            for one in self.provides
        )


def _package(name: str, version: str, provides: str, *needs: str) -> Package:
    offered = [one for clause in relations(provides) for one in clause]
    return Package(name, version, offered, [clause for text in needs for clause in relations(text)])


def installed_packages(told: str) -> dict[str, Package]:
    """Read what ``dpkg-query --show --showformat QUERY`` printed."""
    found = {}
    for line in told.splitlines():
        status, name, version, _, provides, *needs = line.split("\t")
        if status not in ABSENT:
            found[name] = _package(name, version, provides, *needs)
    return found


def cached_packages(debs: Iterable[dict[str, object]]) -> dict[str, Package]:
    """Read the entries of the wheelhouse's index."""
    found = {}
    for deb in debs:
        text = {key: str(value) for key, value in deb.items()}
        package = _package(
            text["package"], text["version"], text["provides"], text["pre_depends"], text["depends"]
        )
        package.file = deb
        found[package.name] = package
    return found


def to_install(
    wanted: Iterable[str], installed: dict[str, Package], cached: dict[str, Package]
) -> list[Package]:
    """Return the cached packages that make a host have the wanted ones, and what these need."""
    host = dict(installed)
    chosen: dict[str, Package] = {}

    def take(package: Package) -> None:
        host[package.name] = chosen[package.name] = package
        waiting.append(package)

    def is_met(alternatives: list[Relation]) -> bool:
        return any(one.satisfies(relation) for relation in alternatives for one in host.values())

    waiting: list[Package] = []
    for name in wanted:
        if name in host:
            continue
        if name not in cached:
            raise DebianError(
                f"the wheelhouse has no Debian package '{name}' for this kind of host, and the "
                f"host has none: it has {', '.join(sorted(cached)) or 'none at all'}"
            )
        take(cached[name])
    while waiting:
        package = waiting.pop()
        for alternatives in package.needs:
            if is_met(alternatives):
                continue
            offers = [one for relation in alternatives for one in cached.values()
                      if one.satisfies(relation)]  # fmt: skip
            if not offers:
                text = " or ".join(
                    f"{one.name} {one.operator} {one.version}".strip() for one in alternatives
                )
                raise DebianError(
                    f"{package.name} needs {text}, which neither host nor wheelhouse has"
                )
            take(offers[0])
        # What is bound to the exact version of something that changes has to change with it.
        for other in list(host.values()):
            if other.name in installed and other.name not in chosen and other.name in cached:
                broken = [
                    one for one in other.needs if any(part.name == package.name for part in one)
                ]
                if not all(map(is_met, broken)):
                    take(cached[other.name])
    return [chosen[name] for name in sorted(chosen)]


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
    kind = Relation("time-daemon")
    return {name for name, package in installed.items() if package.satisfies(kind)}


def with_transitional(going: set[str], installed: dict[str, Package]) -> set[str]:
    """Return these packages and those that need nothing else, so that nothing is lost with them.

    Such as Debian's ntp, which is empty and depends on ntpsec.
    """
    going = set(going)

    def is_lost(alternatives: list[Relation]) -> bool:
        def gives(name: str) -> bool:
            return any(map(installed[name].satisfies, alternatives))

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
        package = rest.pop()
        for alternatives in package.needs:
            givers = [
                one
                for relation in alternatives
                for one in installed.values()
                if one.satisfies(relation)
            ]
            if givers and all(one.name in unwanted for one in givers):
                rest.append(unwanted.pop(givers[0].name))
    return sorted(unwanted)
