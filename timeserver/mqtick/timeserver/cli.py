"""mqtick-timeserver: the command line."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence

from mqtick.mqtt.broker import broker_from
from mqtick.mqtt.loop import Loop
from mqtick.pins import Edge, PinError, keepers
from mqtick.pins.drive import PpsDriver, about_outputs, firing
from mqtick.protocol.auth import Keyring, load_key_file
from mqtick.protocol.clocks import Clock, SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.experiments import about_host
from mqtick.protocol.hangup import read_keys_on_hangup
from mqtick.service import Status, StatusError, read_status
from mqtick.service.check import report
from mqtick.service.commandline import (
    Exit,
    add_run_flags,
    carry_out,
    make_parser,
    read_settings,
    show_status,
    with_default_command,
)
from mqtick.service.program import TICK_NS, Housekeeping
from mqtick.service.status_file import status_path
from mqtick.timeserver.config import Settings
from mqtick.timeserver.doctor import Host, examine
from mqtick.timeserver.experiments import KEPT_EDGES, Experiments
from mqtick.timeserver.server import Server
from mqtick.timeserver.settings_check import check_settings, open_doors
from mqtick.timeserver.status import PROGRAM, metrics, status, status_lines

CONFIG = "/etc/mqtick/timeserver.toml"
# More than begin within the second between two statuses.
_GENERATIONS_UNSEEN = 16
_log = logging.getLogger("mqtick.timeserver")

EXAMPLES = """\
  mqtick-timeserver --broker mqtt://broker.lan
      serve this host's time, with the quality that chronyd states
  mqtick-timeserver --broker mqtt://broker.lan --trust-system-clock --interval-s 0.5
      serve it twice a second without asking chronyd
  mqtick-timeserver status
      show the state of the running server
  mqtick-timeserver doctor
      look for what keeps clients from following it"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return carry_out(lambda: _main(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(PROGRAM, "Publish the time on an MQTT broker (IEEE 1451).", EXAMPLES)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="serve the time (the default)")
    add_run_flags(run, Settings, CONFIG)
    examined = commands.add_parser("doctor", help="look for what keeps clients from following it")
    examined.add_argument("--json", action="store_true", help="print JSON")
    add_run_flags(examined, Settings, CONFIG)
    asked = commands.add_parser("status", help="show the running server's status")
    asked.add_argument("--json", action="store_true", help="print JSON")
    asked.add_argument("--state-folder", default="", help="folder of status.json")
    return parser


def _main(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    words = sys.argv[1:] if arguments is None else arguments
    args = parser.parse_args(with_default_command(parser, words, ("run", "doctor", "status")))
    if args.command == "status":
        return show_status(PROGRAM, args.state_folder, _status_lines, as_json=args.json)
    settings = read_settings(args, Settings, CONFIG, check_settings)
    if isinstance(settings, Exit):
        return settings
    if args.command == "doctor":
        checks = examine(settings, Host())
        return Exit.GOOD if report(checks, as_json=args.json) else Exit.FAILED

    def checked() -> int:
        check_settings(settings)
        return serve(settings)

    # ValueError: a broker's address, a key file, a name
    return carry_out(
        checked, {PinError: Exit.FAILED, OSError: Exit.FAILED, ValueError: Exit.WRONG_USE}
    )


def _status_lines(found: Status) -> Iterator[str]:
    yield from status_lines(found.values)
    if found.is_old:
        yield f"this status is {found.age_ns / 1e9:.0f} s old: {found.why_old()}"


def serve(settings: Settings) -> int:
    """Run until a signal."""
    loop = Loop()
    broker = broker_from(settings)
    keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
    clock: Clock = SystemClock()
    if settings.virtual_clock:
        clock = VirtualClock(VirtualClockSettings.from_text(settings.virtual_clock))
    house = Housekeeping(
        PROGRAM,
        settings.state_folder,
        settings.metrics_listen,
        settings.realtime,
        status=lambda: status(server, time.monotonic_ns()),
        summary=lambda values: f"{values['state']}, {values['done'].get('times', 0)} messages",
        metrics=lambda values: metrics(dict(values)),
    )
    pins = keepers(time=settings.pin, pps=settings.pps)
    house.parts |= {f"pin {name}": keeper for name, keeper in pins.items()}
    outputs = {name: keeper.output for name, keeper in pins.items()}
    pin, pps = outputs.get("time"), outputs.get("pps")
    edges: deque[Edge] | None = deque(maxlen=KEPT_EDGES) if settings.experiments else None
    fire = firing(loop, pin, edges) if pin is not None else None
    server = Server(
        settings,
        loop,
        broker,
        clock,
        keyring,
        before_send=fire if settings.pulse == "before" else None,
        after_send=fire if settings.pulse == "after" else None,
        generation=_generation_after(settings),
    )

    def tick() -> None:
        house.tick()
        server.tick()
        loop.call_lazily(*TICK_NS, tick)

    loop.stop_on_signals()
    read_keys_on_hangup(loop.call_on_signal, settings.keys_file, server.use_keys)
    driver: PpsDriver | None = None
    if pps is not None:
        driver = PpsDriver(loop, pps, lambda time_ns: _raw_of_time(server, time_ns))
        driver.start()
    if edges is not None:
        about = {**about_host(), "settings": dataclasses.asdict(settings)}
        server.experiments = Experiments(
            server, edges, driver, lambda: {**about, **about_outputs(outputs)}
        )
    server.start()
    house.start()
    loop.call_lazily(*TICK_NS, tick)
    _log.info("serving time to %s as number %d", server.connection.address, settings.number)
    for open_door in open_doors(settings):
        _log.warning("%s", open_door)
    try:
        loop.run()
    finally:
        house.stop()
        server.close()
        for output in outputs.values():
            output.close()
        loop.close()
    return Exit.GOOD


def _generation_after(settings: Settings) -> int | None:
    """Return the first generation of this run; None: that of the run before is not known.

    If both had the same number, clients would go on with what they measured of the run before. The
    number may have risen since that one wrote its status, or all runs since then wrote none.
    """
    try:
        last = read_status(status_path(PROGRAM, settings.state_folder)).values.get("generation")
    except StatusError:
        return None
    if type(last) is not int:
        return None
    return (last + _GENERATIONS_UNSEEN + secrets.randbelow(256 - _GENERATIONS_UNSEEN)) % 256


def _raw_of_time(server: Server, time_ns: int) -> int | None:
    """Convert the served clock's time to CLOCK_MONOTONIC_RAW; None while not synchronised."""
    if not server.reference.synchronised:
        return None
    return time_ns - server.clock.time_minus_raw_ns()


if __name__ == "__main__":
    sys.exit(main())
