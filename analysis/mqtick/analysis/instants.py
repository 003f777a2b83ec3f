"""Instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["LATEST_NS", "instant_text"]

LATEST_NS: Final = 1 << 63
"""No instant is that many ns after 1970."""


def instant_text(instant_ns: object) -> str:
    """Return an instant of the Unix epoch in UTC to the second, "" for what is not one."""
    if type(instant_ns) is not int or not 0 < instant_ns < LATEST_NS:
        return ""
    moment = datetime.fromtimestamp(instant_ns // 10**9, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
