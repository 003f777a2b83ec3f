"""The retained status message of a server, for other servers and for fleet tables."""

from __future__ import annotations

import json

from mqtick.timeserver.reference import Reference

GONE = b'{"state":"gone"}'
"""The status of a server that has left; also its last will."""


def announcement(
    reference: Reference, lag_ns: int, *, interval_ns: int, instance: str, since_ns: int
) -> bytes:
    """Return the payload; `instance` tells one run of a server from another, `since_ns` its age.

    `lag_ns` is the lag of the served clock. It is rounded up to a power of two, because the message
    is published again whenever it changes.
    """
    lag_ns = 1 << (abs(lag_ns) - 1).bit_length() if lag_ns else 0
    return json.dumps(
        {
            "state": "synchronised" if reference.synchronised else "unsynchronised",
            "stratum": reference.stratum,
            "root_distance_ns": reference.root_distance_ns + lag_ns,
            "interval_ns": interval_ns,
            "instance": instance,
            "since_ns": since_ns,
        }
    ).encode()
