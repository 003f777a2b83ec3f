"""Instants as people read and write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

LATEST_NS: Final = 1 << 63
"""No instant is that many ns after 1970."""


def instant_text(instant_ns: object) -> str:
    """Return an instant of the Unix epoch in UTC to the second, "" for what is not one."""
    if type(instant_ns) is not int or not 0 < instant_ns < LATEST_NS:
        return ""
    moment = datetime.fromtimestamp(instant_ns // 10**9, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,12}))? ?(Z|[-+]\d\d:?\d\d)?"
)


def since_1970(cell: str) -> str:
    """Return a date and time of ISO 8601 in s of the Unix epoch, anything else as it is.

    Without a time zone it counts as UTC. All its digits are kept, which are more than a float has.
    """
    found = _DATE.fullmatch(cell)
    if found is None:
        return cell
    try:
        moment = datetime.fromisoformat(found[1] + (found[3] or "Z"))
    except ValueError:
        return cell
    return f"{int(moment.timestamp())}.{found[2] or 0}"
