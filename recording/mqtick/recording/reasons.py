"""Why shots failed, counted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

# A number of its own; those of client:pi7, MQT0 and 10.0.0.5 say who is meant.
_NUMBER: Final = re.compile(r"(?<![\w.:-])[-+]?\d[\d,]*(\.\d+)?(?![\w:]|\.\d)")


def counted(reasons: Iterable[str]) -> dict[str, int]:
    """Count sentences, the most frequent first; those that differ only in numbers count as one."""
    alike: dict[str, list[str]] = defaultdict(list)
    for reason in reasons:
        alike[_NUMBER.sub("0", reason)].append(reason)
    found = sorted(alike.values(), key=len, reverse=True)
    return {
        same[0] + (" (and others with other numbers)" if len(set(same)) > 1 else ""): len(same)
        for same in found
    }
