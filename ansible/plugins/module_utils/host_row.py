"""One host's row of the fleet's table: state, figures, what is wrong and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ansible_collections.mqtick.fleet.plugins.module_utils.chrony_view import (
    ChronyView,
    chrony_view,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.durations import duration
from ansible_collections.mqtick.fleet.plugins.module_utils.hostile import (
    dict_of,
    json_of,
    list_of,
    text_of,
    whole_of,
)

ROLES: Final = ("timeserver", "client")
STATES: Final = (
    "unreachable",
    "not understood",
    "not installed",
    "failed config",
    "stopped",
    "old status",
    "unsynchronised",
    "holdover",
    "synchronised",
)
"""From the worst to the best."""
STALE_NS: Final = 5_000_000_000
"""A service writes its status every second: what is older is of one that hangs."""
_REFUSED_CONFIGURATION = "2"
_PAIRS = 16
"""So many disagreements of a client are looked at; three servers have three."""


@dataclass(frozen=True)
class Row:
    """What the table says of a host; durations in ns, offsets reference minus local."""

    host: str
    role: str
    state: str
    reason: str = ""
    remedy: str = ""
    over_limit: bool = False
    offset_ns: int | None = None
    bound_ns: int | None = None
    root_distance_ns: int | None = None
    error_ns: int | None = None
    """The most by which the clock can be off: of `wait --within` and of the alerts too."""
    delay_ns: int | None = None
    server: str = ""
    stratum: int | None = None
    chrony: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    disagreements: tuple[tuple[str, str, int], ...] = ()
    """Pairs of time servers that cannot both be right, by what this client hears, and their gap."""

    good: bool = field(init=False)
    fault: str = field(init=False)
    """What it is counted as; empty when it is good."""

    def __post_init__(self) -> None:
        """A good one is synchronised, and within the limit."""
        fault = self.state if self.state != "synchronised" else ""
        object.__setattr__(self, "fault", fault or ("over the limit" if self.over_limit else ""))
        object.__setattr__(self, "good", not self.fault)


def row_of(host: str, role: str, look: object, limit_us: float) -> Row:
    """Judge what the module `look` brought from a host; anything may be in it."""
    result = dict_of(look)
    seen = dict_of(result.get("seen"))
    said = text_of(result.get("msg")).removeprefix("Task failed: ")
    if result.get("unreachable") or not result:
        why = said or "it was not asked: Ansible had given it up earlier in this run"
        remedy = f"is it switched on, and on the network? ansible -m ping {host} tries again"
        return Row(host, role, "unreachable", why, remedy)
    if not seen:
        remedy = f"ansible -m setup {host} shows whether Ansible and Python work there"
        return Row(host, role, "not understood", said or "the answer holds nothing", remedy)
    version = text_of(result.get("version"), 40)
    status = json_of(dict_of(seen.get(f"{role} status")).get("out"))
    stopped = _stopped(host, role, seen, version, bool(status))
    if stopped is not None:
        return stopped
    if role == "timeserver":
        return _timeserver(host, status, seen, version, limit_us)
    return _client(host, status, seen, version, limit_us)


def _stopped(
    host: str, role: str, seen: dict[str, Any], version: str, has_status: bool
) -> Row | None:
    """Return the row of a host whose service does not run, else None."""
    service = f"mqtick-{role}"
    answer, unit = dict_of(seen.get(f"{role} status")), _properties(seen.get(f"{role} unit"))
    words = text_of(dict_of(seen.get(f"{role} journal")).get("out"))
    site = f"ansible-playbook mqtick.fleet.site --limit {host}"

    def row(state: str, reason: str, remedy: str) -> Row:
        return Row(host, role, state, reason, remedy, version=version)

    if not version and not has_status and "No such file" in text_of(answer.get("err")):
        return row("not installed", f"there is no {service} in /opt/mqtick", site)
    if unit.get("ExecMainStatus") == _REFUSED_CONFIGURATION and unit.get("ActiveState") != "active":
        reason = f"{service} refuses its configuration: {words or 'its journal is empty'}"
        return row("failed config", reason, f"correct the variables of {host}, then {site}")
    active = unit.get("ActiveState", "")
    if active != "active":
        if unit.get("LoadState") == "not-found":
            return row("not installed", f"{service}.service is not there", site)
        if active:
            ended = f"{service} is {active} ({unit.get('Result') or 'no result'})"
            remedy = f"on the host: journalctl -u {service} -n 50; systemctl restart {service}"
            return row("stopped", f"{ended}: {words or 'its journal is empty'}", remedy)
    if not has_status:
        said = text_of(answer.get("err")) or text_of(answer.get("out"), 80) or "nothing"
        remedy = f"on the host: {service} status; systemctl restart {service}"
        return row("not understood", f"{service} status says: {said}", remedy)
    return None


def _properties(answer: object) -> dict[str, str]:
    lines = (text_of(line, 60) for line in str(dict_of(answer).get("out", "")).splitlines()[:20])
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _state(status: dict[str, Any], service: str) -> tuple[str, str, str]:
    """Return state, reason and remedy, as far as the status itself says them."""
    age_ns, state = whole_of(status.get("age_ns")), text_of(status.get("state"), 40)
    error = text_of(status.get("last_error"))
    if state not in ("synchronised", "holdover", "unsynchronised", "standing by"):
        reason = f"the status has the state {state!r}, which this version does not know"
        return "not understood", reason, "upgrade: ansible-playbook mqtick.fleet.upgrade"
    if age_ns is None or age_ns > STALE_NS:
        age = "of unknown age" if age_ns is None else f"{age_ns / 1e9:.0f} s old"
        reason = f"its status is {age}, at most {STALE_NS / 1e9:g} s is good: {service} hangs"
        return "old status", reason, f"on the host: systemctl restart {service}"
    if state == "synchronised":
        return state, "", ""
    if status.get("connected") is False:
        reason = f"not connected to {text_of(status.get('broker'), 80)}: {error or 'no reason'}"
        return state, reason, "is the broker up? on the host: sudo mqtick-client doctor"
    return state, text_of(status.get("reason")), ""


def _client(
    host: str, status: dict[str, Any], seen: dict[str, Any], version: str, limit_us: float
) -> Row:
    state, reason, remedy = _state(status, "mqtick-client")
    servers, chosen = list_of(status.get("servers")), whole_of(status.get("chosen"))
    there = chosen is not None and 0 <= chosen < len(servers)
    row = dict_of(servers[chosen]) if there and chosen is not None else {}
    error_ns = _error_ns(row)
    if state == "synchronised" and error_ns is None:
        state, reason = "not understood", "the status says synchronised, but not how well"
        remedy = "upgrade: ansible-playbook mqtick.fleet.upgrade"
    number = whole_of(row.get("server"))
    if state in ("holdover", "unsynchronised") and not reason:
        reason = (
            "nothing was heard lately; the time is known from earlier samples only"
            if state == "holdover"
            else "connected, but no time of a server is believed" + _refused(status)
        )
        remedy = "is the time server up? on the host: sudo mqtick-client doctor"
    over = error_ns is not None and error_ns > limit_us * 1000
    feeds = dict_of(status.get("chrony"))
    feed = dict_of(feeds.get(str(number)))
    expected = (
        (text_of(feed.get("refid")) or f"MQT{number}") if feeds and number is not None else ""
    )
    view = chrony_view(seen.get("tracking"), seen.get("sources"), expected)
    if over and not reason:
        reason, remedy = _why_over(row, error_ns or 0, limit_us, view, bool(feeds))
    if expected and view.trouble and not reason:
        reason, remedy = view.trouble, "on the host: sudo mqtick-client doctor"
    return Row(
        host,
        "client",
        state,
        reason,
        remedy,
        over,
        offset_ns=whole_of(row.get("offset_ns")),
        bound_ns=whole_of(row.get("bound_ns")),
        root_distance_ns=whole_of(row.get("root_distance_ns")),
        error_ns=error_ns,
        delay_ns=whole_of(row.get("delay_ns")),
        server=str(number) if number is not None else text_of(row.get("format"), 20),
        stratum=whole_of(row.get("stratum")),
        chrony=view.as_json(),
        version=version,
        disagreements=tuple(_disagreements(status)),
    )


def _disagreements(status: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    for each in list_of(status.get("disagreements"))[:_PAIRS]:
        gap_ns = whole_of(dict_of(each).get("gap_ns"))
        names = [text_of(name, 20) for name in list_of(dict_of(each).get("servers"))]
        if gap_ns is not None and len(names) == 2 and all(names):
            yield names[0], names[1], gap_ns


def _error_ns(row: dict[str, Any]) -> int | None:
    """Return the most by which the clock can be off: far end of the interval, and root distance."""
    earliest, latest, root = (
        whole_of(row.get(name))
        for name in ("earliest_offset_ns", "latest_offset_ns", "root_distance_ns")
    )
    if earliest is None or latest is None or root is None:
        return None
    return max(latest, -earliest) + root


def _refused(status: dict[str, Any]) -> str:
    counts = dict_of(status.get("refused"))
    known = {text_of(name, 30): whole_of(count) or 0 for name, count in list(counts.items())[:20]}
    worst = sorted(known, key=lambda name: -known[name])[:3]
    return f" (refused: {', '.join(f'{name} {known[name]}' for name in worst)})" if worst else ""


def _why_over(
    row: dict[str, Any], error_ns: int, limit_us: float, view: ChronyView, steers: bool
) -> tuple[str, str]:
    """Say which part of the sum is the large one, and what helps against it."""
    offset, bound, root = (
        abs(whole_of(row.get(name)) or 0) for name in ("offset_ns", "bound_ns", "root_distance_ns")
    )
    reason = (
        f"may be off by {duration(error_ns)}, the limit is {duration(limit_us * 1000)}: offset "
        f"{duration(offset)}, bound {duration(bound)}, root distance {duration(root)}"
    )
    if offset == max(offset, bound, root):
        if not steers:
            return reason, "nobody steers this clock: client_discipline chrony would"
        if view.trouble:
            return f"{reason}; {view.trouble}", "on the host: sudo mqtick-client doctor"
        return reason, "chrony is still slewing it: look again in some minutes (chronyc tracking)"
    if root >= bound:
        return reason, "its time server is that uncertain itself: look at the server's row"
    return reason, "the way to the broker is slow or busy: see delay; prefer a cable to radio"


def _timeserver(
    host: str, status: dict[str, Any], seen: dict[str, Any], version: str, limit_us: float
) -> Row:
    state, reason, remedy = _state(status, "mqtick-timeserver")
    if state == "synchronised" and status.get("connected") is not True:
        error = text_of(status.get("last_error")) or "no reason given"
        state, reason = "unsynchronised", f"its clock is good, but it is not connected: {error}"
        remedy = "is the broker up? on the host: mqtick-timeserver status"
    view = chrony_view(seen.get("tracking"), seen.get("sources"))
    root = whole_of(status.get("root_distance_ns"))
    over = state == "synchronised" and (root is None or root > limit_us * 1000)
    if over and not reason:
        known = "an unknown time" if root is None else duration(root)
        limit = duration(limit_us * 1000)
        reason = f"its own clock may be off by {known} (root distance), the limit is {limit}"
        remedy = "a nearer or better timeserver_upstream; after a start wait for some polls"
    if state == "unsynchronised" and not remedy:
        remedy = "on the host: chronyc sources; is its upstream reachable?"
    if state == "standing by":
        remedy = "give each time server a timeserver_number of its own, then run site"
    number = whole_of(status.get("number"))
    return Row(
        host,
        "timeserver",
        state,
        reason,
        remedy,
        over,
        root_distance_ns=root,
        error_ns=root if state == "synchronised" else None,
        server="" if number is None else str(number),
        stratum=whole_of(status.get("stratum")),
        chrony=view.as_json(),
        version=version,
    )
