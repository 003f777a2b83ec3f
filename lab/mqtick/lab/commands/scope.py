"""mqtick-lab scope: identify an instrument, take one capture, fetch its screen."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtick.analysis.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.analysis.shot import CAPTURED, ShotMeta, replace_file, write_shot
from mqtick.analysis.waveform import FS_PER_SECOND, Waveform
from mqtick.client.cli import parse_duration_ns
from mqtick.lab.commands.scope_analyser import with_analyser
from mqtick.lab.conversation import InstrumentError
from mqtick.lab.dialects import DIALECTS
from mqtick.lab.logic_analyser import LogicAnalyser
from mqtick.lab.oscilloscope import Oscilloscope
from mqtick.lab.setup import Channel, Setup, Trigger
from mqtick.service.commandline import Exit, fail

__all__ = ["add"]

_EPILOG = """\
examples:
  mqtick-lab scope identify TCPIP::192.168.1.5::5025::SOCKET
  mqtick-lab scope capture TCPIP::192.168.1.5::5025::SOCKET --channels 1,2 --span 1ms --trigger 1
  mqtick-lab scope capture USB0::0x1AB1::0x0588::DS1::INSTR --channels 1,2 --now --out shot.csv
  mqtick-lab scope screenshot TCPIP::192.168.1.5::INSTR --out screen.png
  mqtick-lab scope capture sigrok:fx2lafw --channels 1,2,8 --span 10ms --trigger 1

A resource is a VISA name, or sigrok:DRIVER for a logic analyser. Raw sockets need the port: 5025
(Keysight, Siglent), 5555 (Rigol), 4000 (Tektronix); without an oscilloscope, `mqtick-lab simulate
--demo` is one."""


def add(commands: Any) -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "scope",
        help="talk to one oscilloscope",
        description="Identify an oscilloscope, take one capture, or fetch its screen.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _action(actions, "identify", "say what instrument it is, and which dialect fits it", _identify)
    capture = _action(actions, "capture", "take one record and say where its edges are", _capture)
    capture.add_argument("--channels", type=_channels, default=(1,), metavar="1,2", help="inputs")
    capture.add_argument(
        "--span", type=parse_duration_ns, default=1_000_000, metavar="1ms", help="length of record"
    )
    capture.add_argument("--trigger", type=int, metavar="N", help="channel (default: the first)")
    capture.add_argument("--level", type=float, default=1.65, metavar="V", help="trigger level, V")
    capture.add_argument("--slope", choices=("rising", "falling", "either"), default="rising")
    capture.add_argument(
        "--before", type=float, default=0.1, metavar="SHARE", help="share before the trigger"
    )
    capture.add_argument("--points", type=int, default=100_000, help="samples that are wanted")
    capture.add_argument("--volts-per-division", type=float, default=1.0, metavar="V")
    capture.add_argument("--offset-v", type=float, default=1.65, metavar="V", help="mid-screen, V")
    capture.add_argument("--probe", type=float, default=10.0, help="attenuation (default 10)")
    capture.add_argument(
        "--wait", type=parse_duration_ns, default=10**10, metavar="10s", help="for the trigger"
    )
    capture.add_argument(
        "--now",
        action="store_true",
        help="set nothing and wait for nothing: stop it, and read what it has",
    )
    capture.add_argument(
        "--out", type=Path, metavar="FILE", help=".npz (raw codes) or .csv (volts)"
    )
    screenshot = _action(actions, "screenshot", "fetch the screen as a picture", _screenshot)
    screenshot.add_argument("--out", type=Path, required=True, metavar="FILE")


def _action(
    actions: Any, name: str, text: str, call: Callable[[argparse.Namespace, Oscilloscope], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("resource", help="VISA name, such as TCPIP::192.168.1.5::5025::SOCKET")
    parser.add_argument("--dialect", default="auto", help=f"auto, or {', '.join(DIALECTS)}")
    parser.add_argument("--backend", default="@py", help="PyVISA's back end (default @py)")
    parser.add_argument(
        "--timeout", type=parse_duration_ns, default=3 * 10**9, metavar="3s", help="for an answer"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")

    def with_scope(args: argparse.Namespace) -> int:
        if args.resource.startswith("sigrok:"):
            return with_analyser(args, _capture)
        scope = Oscilloscope.open(
            args.resource, args.dialect, timeout_s=args.timeout / 1e9, backend=args.backend
        )
        try:
            return call(args, scope)
        finally:
            scope.close()

    parser.set_defaults(call=with_scope)
    return parser


def _channels(text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of channels: write it as 1,2")
    return found


def _identify(args: argparse.Namespace, scope: Oscilloscope) -> int:
    identity, dialect = scope.identity, scope.dialect
    if args.json:
        said = {name: getattr(identity, name) for name in identity.__slots__}
        said |= {"dialect": dialect.name, "simulated": scope.simulated, "untried": dialect.untried}
        print(json.dumps(said))
        return Exit.GOOD
    print(f"{identity}{' (simulated)' if scope.simulated else ''}")
    print(f"dialect  {dialect.name}: {dialect.title}")
    if dialect.untried and not scope.simulated:
        print("untried  no instrument of this family was ever tried with mqtick: compare a capture")
    return Exit.GOOD


def _screenshot(args: argparse.Namespace, scope: Oscilloscope) -> int:
    picture = scope.screenshot()
    if not picture.startswith((b"\x89PNG", b"BM")):
        raise InstrumentError(
            f"The instrument sent {len(picture)} octets that are neither PNG nor BMP; nothing was "
            "written."
        )
    try:
        replace_file(args.out, picture)
    except OSError as error:
        return fail(f"{args.out} cannot be written ({error.strerror}); nothing was kept.")
    if args.json:
        print(json.dumps({"file": str(args.out), "octets": len(picture)}))
    else:
        print(f"{args.out}: {len(picture)} octets")
    return Exit.GOOD


def _capture(args: argparse.Namespace, scope: Oscilloscope | LogicAnalyser) -> int:
    if args.out is not None and args.out.suffix not in (".npz", ".csv"):
        return fail(
            f"{args.out} ends with neither .npz nor .csv, so its form is not known; choose one.",
            Exit.WRONG_USE,
        )
    started_ns = time.time_ns()
    trigger = args.trigger or args.channels[0]
    if args.now and isinstance(scope, Oscilloscope):
        scope.play(scope.dialect.stop())
    else:
        if trigger not in args.channels:
            return fail(
                f"Channel {trigger} is to trigger, and is none of --channels; add it there.",
                Exit.WRONG_USE,
            )
        scope.set_up(_setup(args, trigger))
        if not scope.arm():
            return fail(
                "It triggered before it was seen waiting, so what it recorded is of no use; is "
                "the signal much faster than --span? Or is it another trigger channel?"
            )
        if not scope.wait(args.wait / 1e9):
            return fail(
                f"No trigger within {args.wait / 1e9:g} s: channel {trigger} did not pass "
                f"{args.level:g} V {args.slope}. Look at probe, --level and --trigger, or wait "
                "longer (--wait 60s)."
            )
    waveforms = scope.read(args.channels)
    if args.out is not None:
        try:
            _write(args.out, waveforms, started_ns, scope.simulated)
        except OSError as error:
            return fail(f"{args.out} cannot be written ({error.strerror}); nothing was kept.")
    _show(args, scope, waveforms, trigger)
    return Exit.GOOD


def _setup(args: argparse.Namespace, trigger: int) -> Setup:
    return Setup(
        channels=tuple(
            Channel(number, args.volts_per_division, args.offset_v, args.probe)
            for number in sorted(args.channels)
        ),
        trigger=Trigger(trigger, args.level, args.slope),
        span_s=args.span / 1e9,
        before=args.before,
        points=args.points,
    )


def _write(path: Path, waveforms: dict[int, Waveform], started_ns: int, simulated: bool) -> None:
    if path.suffix == ".npz":
        meta = ShotMeta(1, 1, 0, CAPTURED, started_ns=started_ns, simulated=simulated)
        write_shot(path, meta, {str(channel): waveforms[channel] for channel in waveforms})
        return
    columns: dict[str, Any] = {}
    last = None
    for channel, waveform in waveforms.items():
        axis = (waveform.start_fs, waveform.interval_fs, waveform.codes.size)
        if axis != last:  # one column of times for all that share it
            columns["time_s" if last is None else f"time_{channel}_s"] = (
                _seconds(waveform.instant_fs(index)) for index in range(waveform.codes.size)
            )
            last = axis
        columns[f"channel_{channel}_v"] = (f"{volts:.6g}" for volts in waveform.volts())
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(itertools.zip_longest(*columns.values(), fillvalue=""))
    replace_file(path, text.getvalue().encode())


def _seconds(instant_fs: int) -> str:
    """Write an instant in s with all its digits, which a float would round."""
    whole, rest = divmod(abs(instant_fs), FS_PER_SECOND)
    return f"{'-' if instant_fs < 0 else ''}{whole}.{rest:015d}"


def _show(
    args: argparse.Namespace,
    scope: Oscilloscope | LogicAnalyser,
    waveforms: dict[int, Waveform],
    trigger: int,
) -> None:
    said: dict[int, dict[str, Any]] = {}
    firsts: dict[int, Edge] = {}
    for channel, waveform in waveforms.items():
        said[channel] = one = _found(waveform, firsts, channel)
        one["samples"] = waveform.codes.size
        one["interval_ns"] = waveform.interval_fs / 1e6
    reference = trigger if trigger in firsts else min(firsts, default=None)
    times_ns = {
        channel: (edge.instant_fs - firsts[reference].instant_fs) / 1e6
        for channel, edge in firsts.items()
        if reference is not None and channel != reference
    }
    if args.json:
        print(
            json.dumps(
                {
                    "instrument": scope.description,
                    "simulated": scope.simulated,
                    "read_again": getattr(scope, "read_again", 0),
                    "channels": said,
                    "reference": reference,
                    "after_reference_ns": times_ns,
                    "file": None if args.out is None else str(args.out),
                }
            )
        )
        return
    print(f"{scope.description}{' (simulated)' if scope.simulated else ''}")
    for channel, one in said.items():
        print(f"channel {channel}: {one['samples']} samples, {one['interval_ns']:g} ns apart")
        if "problem" in one:
            print(f"  {one['problem']}")
            continue
        clipped = f", {one['clipped']} samples clipped" if one["clipped"] else ""
        print(f"  low {one['low_v']:.3f} V, high {one['high_v']:.3f} V{clipped}")
        for edge in one["edges"][:8]:
            way = "rising " if edge["rising"] else "falling"
            print(f"  {way} {edge['at_ns']:+15.3f} ns +-{edge['uncertainty_ns']:.3f}")
        if len(one["edges"]) > 8:
            print(f"  and {len(one['edges']) - 8} more edges")
    for channel, after_ns in times_ns.items():
        print(f"channel {channel} after channel {reference}: {after_ns:+.3f} ns (first edges)")
    if args.out is not None:
        print(f"written to {args.out}")


def _found(waveform: Waveform, firsts: dict[int, Edge], channel: int) -> dict[str, Any]:
    try:
        levels: StateLevels = state_levels(waveform)
        edges = find_edges(waveform)
    except EdgeError as error:
        return {"problem": str(error), "edges": []}
    if edges:
        firsts[channel] = edges[0]
    scale, zero = waveform.volts_per_code, waveform.code_at_zero
    return {
        "low_v": (levels.low - zero) * scale,
        "high_v": (levels.high - zero) * scale,
        "clipped": levels.clipped,
        "edges": [
            {
                "at_ns": edge.instant_fs / 1e6,
                "rising": edge.rising,
                "uncertainty_ns": edge.uncertainty_fs / 1e6,
            }
            for edge in edges
        ],
    }
