"""`mqtick-client doctor`: looks for what stands in the way of good time, a line a check."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from mqtick.client.config import Settings
from mqtick.service.commandline import Exit

__all__ = ["Check", "run"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was found, what is expected, what to do."""

    name: str
    result: str
    """OK, WARN or FAIL."""
    value: str
    expectation: str = ""
    remedy: str = ""


def run(settings: Settings, as_json: bool) -> int:
    """Make all checks and print them; exit code 1 when one failed."""
    checks: list[Check] = []
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    failed = any(check.result == "FAIL" for check in checks)
    return Exit.FAILED if failed else Exit.GOOD
