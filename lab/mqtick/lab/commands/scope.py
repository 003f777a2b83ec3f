"""mqtick-lab scope: identify an instrument, take one capture, fetch its screen."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtick.client.cli import parse_duration_ns
from mqtick.lab.commands.scope_analyser import with_analyser
from mqtick.lab.commands.scope_record import show, write
from mqtick.lab.commands.scope_segments import segment_path, show_segments, write_segments
from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import DIALECTS
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.recording.shot import replace_file
from mqtick.service import SettingsError
from mqtick.service.commandline import Exit, fail

_EPILOG = """\
examples:
  mqtick-lab scope identify TCPIP::192.168.1.5::5025::SOCKET
  mqtick-lab scope capture TCPIP::192.168.1.5::5025::SOCKET --channels 1,2 --span 1ms --trigger 1
  mqtick-lab scope capture USB0::0x1AB1::0x0588::DS1::INSTR --channels 1,2 --now --out shot.csv
  mqtick-lab scope screenshot TCPIP::192.168.1.5::INSTR --out screen.png
  mqtick-lab scope capture TCPIP::192.168.1.5::5025::SOCKET --channels 1,2 --segments 50
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
    _action(actions, "identify", "say which instrument it is, and which dialect fits it", _identify)
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
    capture.add_argument("--points", type=int, default=100_000, help="number of samples wanted")
    capture.add_argument(
        "--segments", type=int, default=1, metavar="N", help="records in segmented memory"
    )
    capture.add_argument("--volts-per-division", type=float, default=1.0, metavar="V")
    capture.add_argument("--offset-v", type=float, default=1.65, metavar="V", help="mid-screen, V")
    capture.add_argument("--probe", type=float, default=10.0, help="attenuation (default 10)")
    capture.add_argument(
        "--wait", type=parse_duration_ns, default=10**10, metavar="10s", help="for the trigger"
    )
    capture.add_argument(
        "--now",
        action="store_true",
        help="set nothing and do not wait: stop it, and read what it has",
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of channels: write it as 1,2")
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
        print("untried  never tried with a real instrument of this family: compare a capture")
    return Exit.GOOD


def _screenshot(args: argparse.Namespace, scope: Oscilloscope) -> int:
    if code := _would_overwrite(args.out):
        return code
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


def _would_overwrite(path: Path) -> int:
    """Report that a file exists already, before anything is measured; 0 if it does not."""
    if not path.exists():
        return 0
    return fail(
        f"{path} already exists and is kept, so nothing was fetched; name another file, or move "
        "that one away.",
        Exit.WRONG_USE,
    )


def _capture(args: argparse.Namespace, scope: Oscilloscope | LogicAnalyser) -> int:
    if args.out is not None and args.out.suffix not in (".npz", ".csv"):
        return fail(
            f"{args.out} ends with neither .npz nor .csv, so its format is not known; choose one.",
            Exit.WRONG_USE,
        )
    several = args.segments > 1 and isinstance(scope, Oscilloscope)
    if args.out is not None and (
        code := _would_overwrite(segment_path(args.out, 1) if several else args.out)
    ):
        return code
    started_ns = time.time_ns()
    trigger = args.trigger or args.channels[0]
    if args.now and isinstance(scope, Oscilloscope):
        scope.play(scope.dialect.stop())
    else:
        if trigger not in args.channels:
            return fail(
                f"Channel {trigger} is the trigger, but is not one of --channels; add it there.",
                Exit.WRONG_USE,
            )
        scope.set_up(_settings(args, trigger))
        if not scope.arm():
            unseen = getattr(scope, "unseen", "") or (
                "Is the signal much faster than --span, or is this the wrong trigger channel?"
            )
            return fail(
                "It triggered before it was seen waiting, so its record cannot be used. "
                f"{unseen.rstrip('.')}"
            )
        if not scope.wait(args.wait / 1e9):
            return fail(
                f"No trigger within {args.wait / 1e9:g} s: channel {trigger} did not pass "
                f"{args.level:g} V {args.slope}. Check probe, --level and --trigger, or wait "
                "longer (--wait 60s)."
            )
    try:
        if several and isinstance(scope, Oscilloscope):
            segments = scope.read_segments(args.channels)
            if args.out is not None:
                write_segments(args, segments, started_ns, scope.simulated)
            show_segments(args, scope, segments, trigger)
            return Exit.GOOD
        waveforms = scope.read(args.channels)
        if args.out is not None:
            write(args.out, waveforms, started_ns, scope.simulated)
    except OSError as error:
        return fail(f"{args.out} cannot be written ({error.strerror}); it was not kept.")
    show(args, scope, waveforms, trigger)
    return Exit.GOOD


def _settings(args: argparse.Namespace, trigger: int) -> ScopeSettings:
    for name in ("span", "points", "segments", "volts_per_division", "probe"):
        if not 0 < getattr(args, name) < float("inf"):
            flag = name.replace("_", "-")
            raise SettingsError(f"--{flag} is {getattr(args, name)}, but has to be above 0.")
    if not 0 <= args.before <= 1:
        raise SettingsError(
            f"--before is {args.before}, but it is the share of the record before the "
            "trigger: from 0 to 1."
        )
    return ScopeSettings(
        channels=tuple(
            ChannelSettings(number, args.volts_per_division, args.offset_v, args.probe)
            for number in sorted(args.channels)
        ),
        trigger=Trigger(trigger, args.level, args.slope),
        span_s=args.span / 1e9,
        before=args.before,
        points=args.points,
        segments=args.segments,
    )
