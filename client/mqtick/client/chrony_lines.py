"""The refclock lines of chrony.conf, right for a version of chrony, and `chrony-config`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from mqtick.service import ChronydError, ChronyVersion, chronyd
from mqtick.service.commandline import Exit, fail

POLL = 2
"""log2 of the seconds of chronyd's poll.

A burst comes about every 16 s. With a longer poll chronyd would use it later, and would select a
source later, because that needs samples in three polls. With a shorter poll none of the last eight
polls, which reach shows, might have a sample."""

DELAYS_NS = (2_000_000, 20_000_000, 100_000_000, 1_000_000_000)
"""The `delay` of each reference clock of a server; chronyd takes half of it as the greatest error.

A sample has no field for its bound, and chronyd reads `delay` only when it starts. So each server
has several reference clocks, and each sample goes to the narrowest that covers its bound. By
default the third covers `unsynchronised_bound_us`, the fourth exchanges of `maximum_delay_us`."""

# The first version whose median filter takes fewer than four samples per poll (commit 12237bf).
_SINGLE_SAMPLE = ChronyVersion(4, 7)
_PRECISION_S = "0.00001"
"""The least dispersion of a sample."""


def delay_for(bound_ns: int) -> int | None:
    """Return the least delay (ns) of which half covers a bound; None: no reference clock does."""
    return next((delay_ns for delay_ns in DELAYS_NS if delay_ns >= 2 * bound_ns), None)


def refid_for(server: int, delay_ns: int = DELAYS_NS[0]) -> str:
    """Return the reference ID of a server: MQT0 to MQT9, MQ10 to MQ99, M100 to M255.

    A reference ID has at most four characters. With the longer delays it begins with N, O and P.
    """
    if not 0 <= server <= 255:
        raise ValueError(f"server number {server} is not from 0 to 255")
    return "MNOP"[DELAYS_NS.index(delay_ns)] + "QT"[: 3 - len(str(server))] + str(server)


def socket_of(pattern: str, server: int, delay_ns: int) -> str:
    """Return a reference clock's socket; `pattern`: the setting `chrony.socket`.

    For the shortest delay it is the pattern's; with others, as in `chrony.mqtick0.20ms.sock`, the
    delay is in the name.
    """
    path = pattern.replace("{server}", str(server))
    if delay_ns == DELAYS_NS[0]:
        return path
    stem, dot, end = path.rpartition(".")
    return f"{stem}.{delay_ns // 10**6}ms{dot}{end}"


def socket_path(server: int, run_folder: str = "/run", delay_ns: int = DELAYS_NS[0]) -> str:
    """Return the path of a server's socket: `/run/chrony.mqtick0.sock`.

    AppArmor lets Debian's chronyd create `/run/chrony.*.sock` and nothing else there.
    """
    refid_for(server)
    return socket_of(f"{run_folder}/chrony.mqtick{{server}}.sock", server, delay_ns)


def refclock_lines(
    version: ChronyVersion,
    servers: Iterable[int],
    *,
    poll: int = POLL,
    stratum: int = 1,
    run_folder: str = "/run",
) -> tuple[str, ...]:
    """Return the lines for chrony.conf, one for each server and delay, right for this version.

    chrony's own default of `delay`, 1 ns, would make this source overrule good ones, or stop the
    clock by "no majority". `poll` is log2 of seconds, `stratum` that of the time server (chrony's
    default 0 would claim that the reference clock is at this machine).

    Raises ValueError: chronyd does not start at all with a line that it cannot read.
    """
    for name, value, minimum, maximum in (("poll", poll, -6, 10), ("stratum", stratum, 0, 15)):
        if not minimum <= value <= maximum:
            raise ValueError(f"{name} is {value}, but must be from {minimum} to {maximum}")
    median = "filter 1 " if version < _SINGLE_SAMPLE else ""
    return tuple(
        f"refclock SOCK {socket_path(server, run_folder, delay_ns)} "
        f"refid {refid_for(server, delay_ns)} poll {poll} {median}precision {_PRECISION_S} "
        f"delay {delay_ns / 1e9:g} stratum {stratum}"
        for server in servers
        for delay_ns in DELAYS_NS
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--servers", default="0", metavar="N[,N...]", help="numbers of the time servers (default 0)"
    )
    parser.add_argument(
        "--poll",
        type=int,
        default=POLL,
        help=f"log2 of chronyd's update interval in s (default {POLL})",
    )
    parser.add_argument(
        "--stratum", type=int, default=1, help="stratum of the time servers (default 1)"
    )
    parser.add_argument("--chrony-version", default="", help="another host's, for example 4.3")
    parser.add_argument("--run-folder", default="/run", help=argparse.SUPPRESS)


def print_lines(args: argparse.Namespace) -> int:
    """Print the lines; exit code 2 for values that chronyd would not accept."""
    try:
        version = _version(args.chrony_version) if args.chrony_version else chronyd.version()
        lines = refclock_lines(
            version,
            _numbers(args.servers),
            poll=args.poll,
            stratum=args.stratum,
            run_folder=args.run_folder,
        )
    except ChronydError as error:
        return fail(f"{error}; or name a version with --chrony-version")
    except ValueError as error:
        return fail(str(error), Exit.WRONG_USE)
    print(f"# chrony {version}: reference clocks of mqtick-client, four for each time server")
    print("\n".join(lines))
    return Exit.GOOD


def _version(text: str) -> ChronyVersion:
    parts = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?", text, re.ASCII)
    if parts is None:
        raise ValueError(f"{text!r} is not a version of chrony: write it as 4.3 or 4.6.1")
    return ChronyVersion(*(int(part or 0) for part in parts.groups()))


def _numbers(text: str) -> list[int]:
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text, re.ASCII):
        raise ValueError(f"{text!r} names no servers: write their numbers as 0 or 0,1")
    return [int(number) for number in text.split(",")]
