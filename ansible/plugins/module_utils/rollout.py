"""In which order a fleet is upgraded, and whether its time has become worse by it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.mqtick.fleet.plugins.module_utils.durations import duration

Rows = Sequence[Mapping[str, Any]]
"""`hosts` of the table as JSON."""


def batches(rows: Rows, size: str | int) -> list[list[str]]:
    """Return who is upgraded together: one client, clients by batches, each time server alone.

    One client shows in the smallest possible way whether the new version is good; a wrong time
    server would be wrong for everybody, so they come when every client has shown it. Hosts without
    the program, and those that are not reached, are left out.
    """
    servers = sorted({row["host"] for row in rows if row["role"] == "timeserver"})
    there = [row for row in rows if row["version"]]
    clients = [
        row["host"]
        for row in sorted(there, key=lambda row: (not row["good"], row["host"]))
        if row["host"] not in servers
    ]
    step = _step(size, len(clients))
    starts = range(1, len(clients), step)
    found = [clients[:1], *(clients[start : start + step] for start in starts)]
    found += [[host] for host in servers if any(row["host"] == host for row in there)]
    return [batch for batch in found if batch]


def _step(size: str | int, hosts: int) -> int:
    matched = re.fullmatch(r"([0-9]+)( ?%)?", str(size).strip())
    number = int(matched[1]) if matched else 0
    if matched is None or number < 1 or (matched[2] and number > 100):
        raise ValueError(
            f"upgrade_batch is {size!r}, but it is a number of hosts from 1, or a share from 1% to "
            "100%"
        )
    return max(1, hosts * number // 100) if matched[2] else number


def worse(
    after: Rows,
    first: Rows,
    before: Rows,
    batch: Iterable[str],
    quantile: float,
    factor: float,
    slack_us: float,
    lost: float,
) -> list[str]:
    """Return what has become worse, a sentence each; nothing if the fleet's time is as it was.

    States are compared with those right before the batch, durations with those of the very first
    look: many batches that are a little worse each would add up.
    """
    mine, old = set(batch), {_key(row): row for row in before}
    found, others = [], Counter[str]()
    for row in after:
        was = old.get(_key(row))
        if was is None or was["state"] != "synchronised":
            continue
        is_lost = row["state"] != "synchronised"
        if is_lost and row["host"] not in mine:
            others["unreachable" if row["state"] == "unreachable" else "without the time"] += 1
        elif is_lost:
            found.append(
                f"{row['host']} was synchronised and is {row['state']} now: {row['reason']}"
            )
        elif row["host"] in mine and row["good"] and row["reason"] and not was["reason"]:
            found.append(f"{row['host']}: {row['reason']}")
    # An upgrade elsewhere pulls nobody's plug, so one may go in a fleet of any size.
    most = int(lost * len(before))
    for what, number in others.items():
        allowed = max(1, most) if what == "unreachable" else most
        if number > allowed:
            found.append(
                f"of the hosts outside of the batch {number} more are {what}, at most {allowed} may"
            )
    for name, chosen in (("the batch", mine), ("the fleet", None)):
        then, now = (_quantile(rows, chosen, quantile) for rows in (first, after))
        if then is not None and now is not None and now > factor * then + slack_us * 1000:
            found.append(
                f"{100 * quantile:g} % of the clients of {name} may be off by {duration(now)}, "
                f"at the beginning it was {duration(then)}; good is up to "
                f"{duration(factor * then + slack_us * 1000)}"
            )
    return found


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["host"], row["role"]


def _quantile(rows: Rows, hosts: set[str] | None, quantile: float) -> int | None:
    errors = sorted(
        row["error_ns"]
        for row in rows
        if row["role"] == "client"
        and row["error_ns"] is not None
        and (hosts is None or row["host"] in hosts)
    )
    return errors[min(len(errors) - 1, int(quantile * len(errors)))] if errors else None
