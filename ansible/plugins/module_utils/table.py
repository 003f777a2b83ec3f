"""The fleet's table: what hosts were seen to say, as rows, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ansible_collections.mqtick.fleet.plugins.module_utils.durations import duration
from ansible_collections.mqtick.fleet.plugins.module_utils.host_row import (
    ROLES,
    STATES,
    Row,
    row_of,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.hostile import text_of

_WORSE: Final = {state: place for place, state in enumerate(STATES)}
_TOLD: Final = 6
"""So many pairs of time servers are named, those first that most clients find."""


@dataclass(frozen=True)
class Certificate:
    """How long the certificate of the fleet's broker lasts."""

    days: int
    """Whole days from now; negative when it has ended."""
    renew_days: int
    """With fewer days it is time for a new one."""

    @property
    def lasts(self) -> bool:
        """Whether nothing has to be done yet."""
        return self.days >= self.renew_days

    @property
    def sentence(self) -> str:
        """What there is to say and, if it ends soon, to do."""
        if self.days < 0:
            said = "The broker's certificate has ended: who connects anew is not let in"
        elif self.days == 1:
            said = "The broker's certificate ends in 1 day"
        else:
            said = f"The broker's certificate ends in {self.days} days"
        remedy = "ansible-playbook mqtick.fleet.site --tags broker makes a new one"
        given = "one that you gave (broker_certificate_file) you have to replace before"
        return f"{said}." if self.lasts else f"{said}. {remedy}; {given}."


@dataclass(frozen=True)
class Table:
    """All rows, the worst first."""

    rows: tuple[Row, ...]
    limit_us: float
    certificate: Certificate | None = None

    @property
    def is_good(self) -> bool:
        """Whether every host is good, and no time server contradicts another."""
        return all(row.good for row in self.rows) and not self.disagreements

    @property
    def disagreements(self) -> tuple[str, ...]:
        """A sentence for each pair of time servers that cannot both be right."""
        gaps: dict[tuple[str, str], list[int]] = {}
        for row in self.rows:
            for one, other, gap_ns in row.disagreements:
                gaps.setdefault((one, other), []).append(gap_ns)
        hosts = {row.server: row.host for row in self.rows if row.role == "timeserver"}
        named = {
            name: f"{name} ({hosts[name]})" if name in hosts else name
            for pair in gaps
            for name in pair
        }
        most = sorted(gaps.items(), key=lambda pair: -len(pair[1]))[:_TOLD]
        return tuple(
            f"Time servers {named[one]} and {named[other]} disagree by at least "
            f"{duration(min(found))}, as {_clients(len(found))}: one of them is wrong. Compare "
            "mqtick-timeserver status and chronyc sources on both, and stop the wrong one."
            for (one, other), found in most
        )

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what is wrong with them, the worst first, and `good`."""
        found = Counter(row.fault or "good" for row in self.rows)
        return {name: found[name] for name in (*STATES, "over the limit", "good") if found[name]}

    @property
    def summary(self) -> str:
        """One sentence on all of them."""
        good, everything = self.counts.get("good", 0), len(self.rows)
        if not everything:
            return "There is no host in mqtick_timeservers and mqtick_clients."
        noun = "host is" if everything == 1 else "hosts are"
        said = [f"{good} of {everything} {noun} within {duration(self.limit_us * 1000)}"]
        faults = {name: count for name, count in self.counts.items() if name != "good"}
        order = ("over the limit", *(name for name in faults if name != "over the limit"))
        said += [f"{faults[name]} {name}" for name in order if name in faults]
        troubled = sum(bool(row.good and row.reason) for row in self.rows)
        said += [f"{troubled} good, but chrony is not"] if troubled else []
        said += ["time servers disagree"] if self.disagreements else []
        return "; ".join(said)

    def as_json(self) -> dict[str, Any]:
        """Return what a program wants to know."""
        return {
            "summary": self.summary,
            "good": self.is_good,
            "limit_us": self.limit_us,
            "counts": self.counts,
            "disagreements": list(self.disagreements),
            "certificate": asdict(self.certificate) if self.certificate else None,
            "hosts": [asdict(row) for row in self.rows],
        }


def _clients(count: int) -> str:
    return "1 client finds" if count == 1 else f"{count} clients find"


def fleet_table(
    hostvars: Mapping[str, Any],
    groups: Mapping[str, Sequence[str]],
    hosts: Iterable[str],
    limit_us: float,
    given_up: Iterable[str] = (),
) -> Table:
    """Return the table of those `hosts` that are in the groups of clients and time servers.

    Each host's variable `fleet_look` is the registered result of the module `look`; that of a host
    that Ansible has given up meanwhile is an old one.
    """
    rows, lost = [], frozenset(given_up)
    for host in hosts:
        look = None if host in lost else hostvars[host].get("fleet_look")
        for role in ROLES:
            if host in groups.get(f"mqtick_{role}s", ()):
                rows.append(row_of(text_of(str(host), 253), role, look, limit_us))
    return Table(tuple(sorted(rows, key=_badness)), limit_us)


def _badness(row: Row) -> tuple[Any, ...]:
    return (
        row.good,
        _WORSE[row.state],
        not row.over_limit,
        not row.reason,
        -(row.error_ns if row.error_ns is not None else -1),
        row.host,
        row.role,
    )
