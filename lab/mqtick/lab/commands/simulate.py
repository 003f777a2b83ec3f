"""mqtick-lab simulate: simulated oscilloscopes, for a bench without hardware and for developers."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mqtick.lab.scope.dialects import Identity, dialect_for
from mqtick.lab.scope.simulator import (
    FRONTS,
    KINDS,
    EdgeFeed,
    Faults,
    InstrumentServer,
    Model,
    Physics,
)
from mqtick.pins.base import monotonic_raw_ns
from mqtick.service.commandline import Exit, fail

T = TypeVar("T")

_DEMO_INTERVAL_S = 1.0
_DEMO_AHEAD_NS = 20_000_000
_DEMO_WIDTH_NS = 500_000
_DEMO_SPREAD_NS = 50_000.0

_EPILOG = f"""\
examples:
  mqtick-lab simulate --demo
      an oscilloscope whose inputs see an edge every second; then, in another terminal:
      mqtick-lab scope capture TCPIP::127.0.0.1::5025::SOCKET --channels 1,2 --span 1ms --trigger 1
  mqtick-lab simulate --family rigol-dho --port 5555 --bits 12 --noise-mv 3 --skew-ns 2=35 --demo
  mqtick-lab simulate --listen /tmp/pins.sock --line 1=17 --line 2=27
      edges that programs make on their simulated pins (--pin-backend memory --pin-sink PATH)
  mqtick-lab simulate --demo --fault short-block=0.1 --fault late=0.05

faults:
{chr(10).join(f"  {kind:15} {meaning}" for kind, meaning in KINDS.items())}"""


def add(commands: Any) -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "simulate",
        help="simulate an oscilloscope on a TCP socket",
        description="Simulate one or several oscilloscopes until Ctrl-C. They see the edges of "
        "simulated pins (--listen) or their own (--demo), and answer as the real families do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--family",
        action="append",
        choices=sorted(FRONTS),
        help="which family to simulate (default keysight); repeat it for further instruments",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--port",
        type=int,
        help="TCP port; further instruments take the next; 0 for any (default: the family's own)",
    )
    parser.add_argument("--listen", type=Path, metavar="PATH", help="Unix socket for pin records")
    parser.add_argument(
        "--line",
        action="append",
        type=_pair(int, int),
        metavar="CHANNEL=LINE",
        help="pin line that a channel sees (default 1=1 to 4=4)",
    )
    parser.add_argument("--rate-hz", type=float, metavar="HZ", help="highest sample rate")
    parser.add_argument("--bits", type=int, help="of the converter, 8 to 16")
    parser.add_argument("--noise-mv", type=float, metavar="MV", help="standard deviation, in mV")
    parser.add_argument("--rise-ns", type=float, metavar="NS", help="rise time 10-90 %%, in ns")
    parser.add_argument("--ppm", type=float, help="time base error; positive: its clock is fast")
    parser.add_argument(
        "--skew-ns",
        action="append",
        type=_pair(int, float),
        metavar="CHANNEL=NS",
        help="how much later a channel sees edges than the others (cable, probe)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random (default 1)")
    parser.add_argument(
        "--fault",
        action="append",
        type=_pair(str, float),
        metavar="KIND=PROBABILITY",
        help="what goes wrong now and then; see below",
    )
    parser.add_argument(
        "--demo", action="store_true", help="make an edge on every channel each second, and say so"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.set_defaults(call=_call)


def _pair(key: Callable[[str], Any], value: Callable[[str], T]) -> Callable[[str], tuple[Any, T]]:
    def parse(text: str) -> tuple[Any, T]:
        left, equals, right = text.partition("=")
        try:
            if not equals:
                raise ValueError
            return key(left), value(right)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=NUMBER") from None

    return parse


def _call(args: argparse.Namespace) -> int:
    try:
        servers = _servers(args)
    except ValueError as error:
        return fail(str(error), Exit.WRONG_USE)
    return asyncio.run(_serve(args, *servers))


def _servers(args: argparse.Namespace) -> tuple[EdgeFeed, list[InstrumentServer]]:
    lines = dict(args.line) if args.line else {channel: channel for channel in range(1, 5)}
    skews = dict(args.skew_ns or ())
    for channel in (*lines, *skews):
        if not 1 <= channel <= 4:
            raise ValueError(f"There is no channel {channel}; a simulated instrument has 1 to 4.")
    chances = dict(args.fault or ())
    for kind, chance in chances.items():
        if not 0 <= chance <= 1:
            raise ValueError(f"{kind}={chance:g} is not a probability; give one from 0 to 1.")
    feed = EdgeFeed()
    servers = []
    for family in args.family or ["keysight"]:
        front = FRONTS[family]
        model = Model(feed, lines, _physics(args, front.physics, skews))
        faults = Faults(chances, seed=args.seed)
        try:
            servers.append(InstrumentServer(front(model), faults))
        except Exception as fault:  # a class of another package may raise anything
            raise ValueError(
                f"The family {family} cannot be simulated ({type(fault).__name__}: {fault}); "
                "repair or remove the package that provides it."
            ) from fault
    return feed, servers


def _physics(args: argparse.Namespace, usual: Physics, skews: dict[int, float]) -> Physics:
    given = {
        "max_rate_hz": (args.rate_hz, 1.0, 1e12),
        "bits": (args.bits, 8, 16),
        "noise_v": (None if args.noise_mv is None else args.noise_mv / 1e3, 0.0, 1e3),
        "rise_s": (None if args.rise_ns is None else args.rise_ns / 1e9, 0.0, 1.0),
        "ppm": (args.ppm, -1e5, 1e5),
    }
    for name, (value, least, most) in given.items():
        if value is not None and not least <= value <= most:
            raise ValueError(
                f"{name} of {value:g} is not from {least:g} to {most:g}, the range of a "
                "simulated instrument; choose another value."
            )
    return replace(
        usual,
        seed=args.seed,
        skew_s={channel: skew_ns / 1e9 for channel, skew_ns in skews.items()},
        **{name: value for name, (value, _, _) in given.items() if value is not None},
    )


async def _serve(args: argparse.Namespace, feed: EdgeFeed, servers: list[InstrumentServer]) -> Exit:
    end = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, end.set)
    demo = None
    try:
        if args.listen is not None:
            feed.listen(args.listen)
        for index, server in enumerate(servers):
            await _start(args, server, index)
        if args.demo:
            demo = asyncio.create_task(_demo(args, feed, servers[0].front.model.lines))
            demo.add_done_callback(lambda _: end.set())
        await end.wait()
        if demo is not None and demo.done():
            await demo  # it never returns, so this raises its error
    except BrokenPipeError:
        raise
    except (OSError, OverflowError) as error:
        return fail(
            f"The simulated oscilloscope cannot listen ({error}); choose another --port, --host "
            "or --listen, or stop the program that uses it."
        )
    finally:
        if demo is not None:
            demo.cancel()
        for server in servers:
            await server.stop()
        feed.close()
    return Exit.GOOD


async def _start(args: argparse.Namespace, server: InstrumentServer, index: int) -> None:
    front = server.front
    port = args.port
    if port is None:
        port = dialect_for(Identity.parse(front.identity)).port + index  # families share ports
    elif port:
        port += index
    await server.start(args.host, port)
    resource = f"TCPIP::{args.host}::{server.port}::SOCKET"
    if args.json:
        said = {"resource": resource, "identity": front.identity, "simulated": True}
        print(json.dumps(said), flush=True)
    else:
        print(f"{resource}  {front.identity} (simulated), until Ctrl-C", flush=True)


async def _demo(args: argparse.Namespace, feed: EdgeFeed, lines: dict[int, int]) -> None:
    """Make edges with a known random skew, with which captures can be compared."""
    chance = random.Random(args.seed)
    first = min(lines)
    while True:
        began_ns = monotonic_raw_ns() + _DEMO_AHEAD_NS
        skews_ns = {
            channel: 0 if channel == first else round(abs(chance.gauss(0.0, _DEMO_SPREAD_NS)))
            for channel in sorted(lines)
        }
        for channel, skew_ns in skews_ns.items():
            feed.add(lines[channel], began_ns + skew_ns, True)
            feed.add(lines[channel], began_ns + skew_ns + _DEMO_WIDTH_NS, False)
        if args.json:
            said = {"at_ns": began_ns, "skew_ns": skews_ns, "simulated": True}
            print(json.dumps(said), flush=True)
        else:
            told = ", ".join(f"{channel}: {skew:+} ns" for channel, skew in skews_ns.items())
            print(f"edges (truth, simulated)  {told}", flush=True)
        await asyncio.sleep(_DEMO_INTERVAL_S)
