"""What is known of a fleet's clients, from what they publish. Nothing of it is believed to be safe.

Whoever may publish on the topics can write anything, so each member is checked, and their number is
limited. It is for watching only.
"""

from __future__ import annotations

import calendar
import json
import time as clock
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mqtick.client.status_text import offset_text, width_text
from mqtick.protocol.errors import DecodeError, shown
from mqtick.protocol.time_types import NS_PER_S

_MOST_OCTETS = 8192
_MOST_CLIENTS = 10_000
_MOST_NS = 1 << 62
_MINUTE_NS = 60 * NS_PER_S
_HISTORY = 60
# The worst first.
_STATES = ("gone", "silent", "unsynchronised", "holdover", "synchronised")
_UNKNOWN_NS = _MOST_NS
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NUMBERS = ("clock_error_ns", "offset_ns", "bound_ns", "root_distance_ns")
_NOT_NEGATIVE = ("clock_error_ns", "bound_ns", "root_distance_ns")
_FLAGS = ("bound_is_assumed", "authenticated")
_TEXTS = ("server", "steered_by", "version", "time", "chrony_says")


@dataclass(frozen=True, slots=True)
class Client:
    """One client as it published itself.

    Attributes:
        state: As in its status; `gone` after it has ended, or the broker has lost it.
        clock_error_ns: The most by which its clock can be wrong; None: not known.
        offset_ns: Its server's time minus its clock.
        bound_ns: Of that offset, without the root distance.
        steered_by: Who disciplines its clock with this; empty: nobody.
        interval_s: It publishes at least as often as this.
    """

    name: str
    state: str
    clock_error_ns: int | None = None
    offset_ns: int | None = None
    bound_ns: int | None = None
    root_distance_ns: int | None = None
    bound_is_assumed: bool = False
    authenticated: bool = False
    server: str = ""
    steered_by: str = ""
    version: str = ""
    time: str = ""
    interval_s: int = 10
    chrony_says: str = ""
    troubles: tuple[str, ...] = ()

    @property
    def _rank(self) -> tuple[int, int]:
        error_ns = _UNKNOWN_NS if self.clock_error_ns is None else self.clock_error_ns
        return _STATES.index(self.state), -error_ns

    def age_ns(self, wall_ns: int) -> int:
        """Return how long ago it was written, by a clock that reads `wall_ns`.

        What the client knows of its own clock's error is taken off. A day, if it does not say.
        """
        try:
            written_ns = calendar.timegm(clock.strptime(self.time, _TIME)) * NS_PER_S
        except (ValueError, OverflowError):
            return 86_400 * NS_PER_S
        return max(0, wall_ns - written_ns - (self.offset_ns or 0))

    def is_within(self, limit_ns: int) -> bool:
        """Whether its clock is known to be wrong by no more than this."""
        return self.clock_error_ns is not None and self.clock_error_ns <= limit_ns


def read(name: str, payload: bytes) -> Client:
    """Read what the client `name` published; DecodeError if it is not a client's status."""
    try:
        if len(payload) > _MOST_OCTETS:
            raise ValueError(f"it has {len(payload)} octets")
        found = json.loads(payload)
        troubles = found.get("troubles") or {}
        state = found["state"]
        if state not in _STATES or not isinstance(troubles, dict):
            raise ValueError(f"its state is {shown(str(state))}")
        members: dict[str, Any] = {key: _number(found.get(key)) for key in _NUMBERS}
        if any((members[key] or 0) < 0 for key in _NOT_NEGATIVE):
            raise ValueError("an error is negative")
        members |= {key: found.get(key) is True for key in _FLAGS}
        members |= {key: _text(found.get(key)) for key in _TEXTS}
        members["interval_s"] = min(max(_number(found.get("interval_s")) or 10, 1), 3600)
        says = tuple(f"{_text(part)}: {_text(why)}" for part, why in troubles.items())
        return Client(name, state, troubles=says, **members)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError("status", f"what {name} published is not its status: {error}") from None


def _number(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or abs(value) > _MOST_NS:
        raise ValueError(f"{shown(str(value))} is not a number of ns")
    return value


def _text(value: object) -> str:
    """Return it without what could steer a terminal."""
    text = "" if value is None else str(value)
    return "".join(each if each.isprintable() else "?" for each in text[:200])


@dataclass(slots=True)
class _Row:
    client: Client
    heard_ns: int
    since_ns: int | None = None
    """When its state was seen to change; None: it has been so since we look."""
    history: deque[list[int | None]] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    """Each minute, its number and the greatest clock error in it; None: not known."""


class Fleet:
    """All clients that were heard. Times are CLOCK_MONOTONIC, ns."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def note(
        self, name: str, payload: bytes, now_ns: int, retained_wall_ns: int | None = None
    ) -> None:
        """Take what a client published; DecodeError if it is not to be read.

        `retained_wall_ns`: what this host's clock reads, if the broker has kept it since some time.
        """
        if not payload:  # somebody has cleared it: the client does not belong to the fleet any more
            self._rows.pop(name, None)
            return
        client = read(name, payload)
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= _MOST_CLIENTS:
                raise DecodeError("too-many", f"There are {_MOST_CLIENTS} clients; ignored.")
            row = self._rows[name] = _Row(client, now_ns)
        elif row.client.state != client.state:
            row.since_ns = now_ns
        row.client, row.heard_ns = client, now_ns
        if retained_wall_ns is not None and client.state != "gone":
            row.heard_ns -= client.age_ns(retained_wall_ns)
        minute, error_ns = now_ns // _MINUTE_NS, client.clock_error_ns
        if row.history and row.history[-1][0] == minute:
            before_ns = row.history[-1][1]
            known = before_ns is not None and error_ns is not None
            row.history[-1][1] = max(before_ns, error_ns) if known else None  # type: ignore[type-var]
        else:
            row.history.append([minute, error_ns])

    def clients(self, now_ns: int) -> list[Client]:
        """Return the clients, the worst first; one that should have published is `silent`."""
        return [client for client, _ in self._sorted(now_ns)]

    def _sorted(self, now_ns: int) -> list[tuple[Client, _Row]]:
        rows = [(_as_heard(row, now_ns), row) for row in self._rows.values()]
        return sorted(rows, key=lambda pair: (pair[0]._rank, pair[0].name))

    def as_json(self, now_ns: int, *, history: bool = False) -> list[dict[str, Any]]:
        """Return one object for each client, the worst first; with the history of the last hour."""
        minute = now_ns // _MINUTE_NS
        found = []
        for client, row in self._sorted(now_ns):
            since_ns = row.heard_ns if client.state == "silent" else row.since_ns
            values = asdict(client) | {
                "heard_s": (now_ns - row.heard_ns) / 1e9,
                "since_s": None if since_ns is None else (now_ns - since_ns) / 1e9,
            }
            if history:
                values["history"] = [[minute - (at or 0), error] for at, error in row.history]
            found.append(values)
        return found


def _as_heard(row: _Row, now_ns: int) -> Client:
    late_ns = (3 * row.client.interval_s + 5) * NS_PER_S
    if row.client.state == "gone" or now_ns - row.heard_ns <= late_ns:
        return row.client
    return Client(row.client.name, "silent", version=row.client.version, time=row.client.time)


def table(clients: Sequence[Client]) -> Iterator[str]:
    """Yield the lines of a table."""
    rows = [("client", "state", "clock within", "offset", "server", "steered by", "version", "")]
    for each in clients:
        assumed = " assumed" if each.bound_is_assumed else ""
        rows.append(
            (
                each.name,
                each.state,
                "unknown"
                if each.clock_error_ns is None
                else width_text(each.clock_error_ns) + assumed,
                offset_text(each.offset_ns) if each.offset_ns is not None else "",
                each.server + ("" if each.authenticated or not each.server else " no key"),
                each.steered_by or ("nobody" if each.version else ""),
                each.version,
                "; ".join(each.troubles),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
