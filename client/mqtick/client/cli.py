"""mqtick-client: the command line."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from mqtick.client import chrony_lines
from mqtick.client.config import Settings, check_together, client_name
from mqtick.client.doctor import examine as doctor
from mqtick.client.fleet.watch import watch
from mqtick.client.interval import PROGRAM, Now, NowError, now_from
from mqtick.client.run import follow
from mqtick.client.settings_check import check_settings
from mqtick.client.status_text import (
    ASSUMPTION,
    MARKS,
    ONLY_HEARD,
    apart,
    sources_lines,
    status_lines,
)
from mqtick.mqtt.broker import broker_from
from mqtick.pins import PinError
from mqtick.protocol.auth import Keyring, load_key_file
from mqtick.protocol.clocks import VirtualClockSettings
from mqtick.protocol.time_types import NS_PER_S
from mqtick.service import Status, StatusError, read_status
from mqtick.service.commandline import (
    Exit,
    add_run_flags,
    carry_out,
    fail,
    make_parser,
    read_settings,
    show_status,
    with_default_command,
)
from mqtick.service.page_server import parse_address
from mqtick.service.program import check_metrics_listen
from mqtick.service.status_file import status_path

CONFIG = "/etc/mqtick/client.toml"
_MINUTE = 60 * NS_PER_S
_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": NS_PER_S, "m": _MINUTE, "min": _MINUTE}
_COMMANDS = ("run", "status", "sources", "now", "wait", "doctor", "fleet", "chrony-config")

EXAMPLES = """\
  mqtick-client --broker mqtt://broker.lan
      follow the time servers of a broker and measure, change nothing
  mqtick-client --broker mqtt://broker.lan --discipline chrony
      the same, and give chronyd the measurements
  mqtick-client status --watch
      see how good the time is, again and again
  mqtick-client sources
      see the time servers, one line each
  mqtick-client wait --within 100us --timeout 60s
      wait until the time is that good (exit code 3: not synchronised, 4: not that good)
  mqtick-client chrony-config | sudo tee /etc/chrony/conf.d/mqtick.conf
      tell chronyd where the measurements come from
  mqtick-client doctor --broker mqtt://broker.lan
      look for what stands in the way of good time
  mqtick-client fleet --broker mqtt://broker.lan --within 1ms
      see every client that publishes its status, the worst first (exit codes as of wait)
  mqtick-client fleet --broker mqtt://broker.lan --http 127.0.0.1:8080
      the same as a page, with the last hour"""


def parse_duration_ns(text: str) -> int:
    """Read `100us`, `1.5ms`, `60s`, `2m` or `2min` as ns; ArgumentTypeError otherwise."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|min)", text)
    if match is None:
        what = "is negative" if text.startswith("-") else "is not a duration"
        raise argparse.ArgumentTypeError(f"{text!r} {what}: write it as 100us, 5ms, 60s or 2m")
    return round(float(match[1]) * _UNITS[match[2]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return carry_out(lambda: _main(sys.argv[1:] if arguments is None else arguments))


def _main(words: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(with_default_command(parser, words, _COMMANDS))
    code: int = args.call(args)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        PROGRAM, "Know the time from an MQTT broker, and how well (IEEE 1451).", EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="follow the time servers (the default)")
    add_run_flags(run, Settings, CONFIG)
    run.set_defaults(call=_run)
    for name, text, lines in (
        ("status", "show how good the time is", status_lines),
        ("sources", f"show the servers, one line each ({MARKS})", sources_lines),
    ):
        status = _asking(commands, name, text, _status)
        status.add_argument("--watch", action="store_true", help="repeat every second")
        status.set_defaults(lines=lines)
    _asking(commands, "now", "tell the time as an interval", _now)
    wait = _asking(commands, "wait", "wait until the time is good", _wait)
    wait.add_argument(
        "--within",
        type=parse_duration_ns,
        default=1_000_000,
        metavar="DURATION",
        help="the greatest error allowed (default 1ms)",
    )
    wait.add_argument(
        "--timeout",
        type=parse_duration_ns,
        default=60 * NS_PER_S,
        metavar="DURATION",
        help="how long to wait (default 60s)",
    )
    wait.add_argument(
        "--of",
        choices=("clock", "estimate"),
        default="clock",
        help="whose error: the system clock's (default), or that of what `now` tells",
    )
    examine = commands.add_parser("doctor", help="look for what stands in the way of good time")
    examine.add_argument("--json", action="store_true", help="print JSON")
    examine.add_argument("--broker-only", action="store_true", help="check only the broker")
    add_run_flags(examine, Settings, CONFIG)
    examine.set_defaults(call=_doctor)
    fleet = commands.add_parser("fleet", help="see every client of a broker, the worst first")
    fleet.add_argument("--json", action="store_true", help="print JSON")
    fleet.add_argument("--watch", action="store_true", help="repeat every second")
    fleet.add_argument("--http", default="", metavar="ADDRESS:PORT", help="serve it as a page")
    fleet.add_argument(
        "--within",
        type=parse_duration_ns,
        default=1_000_000,
        metavar="DURATION",
        help="the greatest error allowed of a clock (default 1ms)",
    )
    add_run_flags(fleet, Settings, CONFIG)
    fleet.set_defaults(call=_fleet)
    chrony = commands.add_parser("chrony-config", help="print the lines that chronyd needs")
    chrony_lines.add_flags(chrony)
    chrony.set_defaults(call=chrony_lines.print_lines)
    return parser


def _asking(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    call: object,
) -> argparse.ArgumentParser:
    asking = commands.add_parser(name, help=text)
    asking.add_argument("--json", action="store_true", help="print JSON")
    asking.add_argument("--state-folder", default="", help="folder of status.json")
    asking.set_defaults(call=call)
    return asking


def _check(settings: Settings) -> None:
    """Raise ValueError or OSError for settings that would fail later."""
    check_together(settings)
    check_metrics_listen(settings.metrics_listen)
    broker_from(settings)
    keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
    check_settings(settings, keyring, client_name(settings))
    if settings.virtual_clock:
        VirtualClockSettings.from_text(settings.virtual_clock)


def _run(args: argparse.Namespace) -> int:
    settings = read_settings(args, Settings, CONFIG, _check)
    if isinstance(settings, Exit):
        return settings

    def run() -> int:
        check_together(settings)
        return follow(settings, client_name(settings))

    # ValueError: a broker's address, a key file, a name
    return carry_out(run, {PinError: Exit.FAILED, OSError: Exit.FAILED, ValueError: Exit.WRONG_USE})


def _status(args: argparse.Namespace) -> int:
    while True:
        code = _show_status(args)
        if not args.watch:
            return code
        sys.stdout.flush()
        time.sleep(1)


def _show_status(args: argparse.Namespace) -> Exit:
    if args.watch and sys.stdout.isatty() and not args.json:
        print("\033[H\033[2J", end="")

    def lines(found: Status) -> Iterable[str]:
        shown: Iterable[str] = args.lines(
            found.values, found.age_ns, found.why_old() if found.is_old else ""
        )
        return shown

    return show_status(PROGRAM, args.state_folder, lines, as_json=args.json)


def _now(args: argparse.Namespace) -> int:
    try:
        found = read_status(status_path(PROGRAM, args.state_folder), PROGRAM)
        told = now_from(found)
    except (StatusError, NowError) as error:
        return fail(error, Exit.NOT_SYNCHRONISED)
    if args.json:
        print(json.dumps(asdict(told)))
    else:
        print(f"earliest {_utc(told.earliest_ns)}")
        print(f"latest   {_utc(told.latest_ns)}")
        print(f"state    {told.state}, give or take {_bound(told, told.bound_ns)}")
        if told.narrow_bound_ns is not None:
            print(f"assumed  +-{told.narrow_bound_ns / 1000:.1f} us {ASSUMPTION}")
        for each in found.values.get("disagreements", ()):
            print(f"but      {apart(each)}: one of them is wrong")
    return Exit.GOOD if told.state == "synchronised" else Exit.NOT_SYNCHRONISED


def _utc(instant_ns: int) -> str:
    seconds, fraction = divmod(instant_ns, NS_PER_S)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09d}Z"


def _wait(args: argparse.Namespace) -> int:
    end_ns = time.monotonic_ns() + args.timeout
    while True:
        code, sentence = _is_good(args)
        if code is Exit.GOOD:
            print(sentence)
            return code
        if time.monotonic_ns() >= end_ns:
            limit, waited = f"{args.within / 1000:g} us", f"{args.timeout / 1e9:g} s"
            return fail(f"not within {limit} after {waited}: {sentence}", code)
        time.sleep(0.1)


def _is_good(args: argparse.Namespace) -> tuple[Exit, str]:
    """Return GOOD, LIMIT_NOT_MET or NOT_SYNCHRONISED, and a sentence for the user."""
    try:
        found = read_status(status_path(PROGRAM, args.state_folder), PROGRAM)
        if found.is_old:
            raise NowError(f"the status is {found.age_ns / 1e9:.0f} s old: {found.why_old()}")
        told = now_from(found)
    except (StatusError, NowError) as error:
        return Exit.NOT_SYNCHRONISED, str(error)
    error_ns = told.clock_error_ns if args.of == "clock" else told.bound_ns
    if told.state != "synchronised":
        return Exit.NOT_SYNCHRONISED, f"the time is in {told.state}"
    gaps = [row for row in found.values.get("disagreements", ()) if row["gap_ns"] > args.within]
    if gaps:
        return Exit.LIMIT_NOT_MET, f"{', '.join(map(apart, gaps))}: one of them is wrong"
    if error_ns > args.within:
        return Exit.LIMIT_NOT_MET, f"the time is only right within {_bound(told, error_ns)}"
    return Exit.GOOD, f"the time is right within {_bound(told, error_ns)}"


def _bound(told: Now, bound_ns: int) -> str:
    return f"{bound_ns / 1000:.1f} us" + (f" {ONLY_HEARD}" if told.bound_is_assumed else "")


def _doctor(args: argparse.Namespace) -> int:
    settings = read_settings(args, Settings, CONFIG)
    if isinstance(settings, Exit):
        return settings
    if not args.verbose:  # the findings say more than the log messages of the attempts
        logging.getLogger("mqtick").setLevel(logging.CRITICAL)
    return doctor.run(settings, args.json, broker_only=args.broker_only)


def _fleet(args: argparse.Namespace) -> int:
    settings = read_settings(args, Settings, CONFIG)
    if isinstance(settings, Exit):
        return settings
    if args.http and (args.json or args.watch):
        return fail("--http serves a page: leave --json and --watch out", Exit.WRONG_USE)
    if not args.verbose:  # the table says what is wrong with the connection
        logging.getLogger("mqtick").setLevel(logging.CRITICAL)
    try:
        if args.http:
            parse_address(args.http)
        return watch(settings, args.within, repeat=args.watch, as_json=args.json, http=args.http)
    except ValueError as error:  # an address
        return fail(str(error), Exit.WRONG_USE)


if __name__ == "__main__":
    sys.exit(main())
