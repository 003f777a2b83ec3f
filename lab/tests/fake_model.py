#!/usr/bin/env python3
"""Stands in for mqtick-broker-model: answers each PUBLISH with copies, one in 14 cycles."""

import os
import sys
from pathlib import Path


def main() -> int:
    """Read the batch, write what a broker would send."""
    come, gone = map(Path, sys.argv[2:4])
    if sentence := os.environ.get("FAKE_FAULT"):
        print(f"error: {sentence}", file=sys.stderr)
        return 1
    subscribers: dict[str, None] = {}
    lines = ["# cycles 1"]
    for line in come.read_text().splitlines():
        cycle, peer, octets = line.split()
        if octets.startswith("82"):
            subscribers[peer] = None
            lines.append(f"{cycle} {peer} 9003000100")
        else:
            lost = int(os.environ.get("FAKE_LOST", "0"))
            for place, each in enumerate(list(subscribers)[lost:]):
                lines.append(f"{int(cycle) + 30 + 14 * place} {each} {octets}")
    gone.write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
