"""The refclock lines of chrony.conf, right for the chrony that is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from mqtick.service.chronyd_csv import ChronyVersion

POLL = 2
"""log2 of the seconds of chronyd's poll.

A burst comes every 16 s or so. A longer poll would take it later, and make the choice of a source,
for which chronyd wants samples in three polls, later; with a shorter one none of the last eight
polls, which reach shows, might have a sample."""

# The first version whose median filter takes fewer than four samples per poll (commit 12237bf).
_SINGLE_SAMPLE = ChronyVersion(4, 7)


def refid_for(server: int) -> str:
    """Return the reference ID of a server, MQT0 to MQT9, MQ10 to MQ99, M100 to M255.

    A reference ID has at most four characters.
    """
    if not 0 <= server <= 255:
        raise ValueError(f"server number {server} is not from 0 to 255")
    return "MQT"[: 4 - len(str(server))] + str(server)


def socket_path(server: int, run_folder: str = "/run") -> str:
    """Return the path of a server's socket: ``/run/chrony.mqtick0.sock``.

    AppArmor lets Debian's chronyd create ``/run/chrony.*.sock`` and nothing else there.
    """
    refid_for(server)
    return f"{run_folder}/chrony.mqtick{server}.sock"


def refclock_lines(
    version: ChronyVersion,
    servers: Iterable[int],
    *,
    delay_ns: int,
    poll: int = POLL,
    precision_ns: int = 10_000,
    stratum: int = 1,
    options: Iterable[Literal["noselect", "prefer", "trust", "require"]] = (),
    run_folder: str = "/run",
) -> tuple[str, ...]:
    """Return the lines for chrony.conf, one for each server, right for this version of chrony.

    ``delay_ns`` is the round trip through the broker: half of it is the error that chronyd assumes
    beyond the noise.  chrony's own default, 1 ns, would make this source overrule good ones, or
    stop the clock by "no majority"; so there is no default here.  ``poll`` is log2 of seconds,
    ``precision_ns`` the least dispersion of a sample, ``stratum`` that of the time server (chrony's
    default 0 would claim that the reference clock is at this machine).

    Raises ValueError: chronyd does not start at all with a line that it cannot read.
    """
    words = tuple(options)
    if unknown := set(words) - {"noselect", "prefer", "trust", "require"}:
        raise ValueError(f"{sorted(unknown)} cannot be options of a refclock line here")
    for name, value, minimum, maximum in (
        ("delay_ns", delay_ns, 1, 10**10),
        ("poll", poll, -6, 10),
        ("precision_ns", precision_ns, 1, 10**9),
        ("stratum", stratum, 0, 15),
    ):
        if not minimum <= value <= maximum:
            raise ValueError(f"{name} is {value}, but must be from {minimum} to {maximum}")
    median = ("filter 1",) if version < _SINGLE_SAMPLE else ()
    return tuple(
        " ".join(
            (
                f"refclock SOCK {socket_path(server, run_folder)} refid {refid_for(server)}",
                f"poll {poll}",
                *median,
                f"precision {_seconds(precision_ns)} delay {_seconds(delay_ns)}",
                f"stratum {stratum}",
                *words,
            )
        )
        for server in servers
    )


def _seconds(value_ns: int) -> str:
    return f"{value_ns // 10**9}.{value_ns % 10**9:09d}".rstrip("0").rstrip(".")
