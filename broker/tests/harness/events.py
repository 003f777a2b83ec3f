"""Waiting for something to hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
T = TypeVar("T")


def until(found: Callable[[], T | None], what: str = "it does not become true") -> T:
    """Wait until there is something, and return it; if it never comes, fail and say `what`."""
    end = time.monotonic() + PATIENCE_S
    while not (something := found()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return something
