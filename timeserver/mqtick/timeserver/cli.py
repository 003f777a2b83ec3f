"""mqtick-timeserver: the command line."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence

from mqtick.pins import Edge, PinError, PinSettings, open_output
from mqtick.pins.drive import PpsDriver, about_outputs, firing
from mqtick.pins.output import Output
from mqtick.protocol.auth import Keyring, load_key_file
from mqtick.protocol.broker import broker_from
from mqtick.protocol.clocks import Clock, SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.experiments import about_host
from mqtick.protocol.hangup import read_keys_on_hangup
from mqtick.protocol.loop import Loop
from mqtick.protocol.text1451 import check_lns
from mqtick.protocol.topics import TopicTree
from mqtick.service import StatusError, read_status
from mqtick.service.commandline import (
    Exit,
    add_run_flags,
    carry_out,
    fail,
    make_parser,
    read_settings,
    with_default_command,
)
from mqtick.service.program import TICK_NS, Housekeeping, check_metrics_listen, status_path
from mqtick.service.program_settings import PinKeys
from mqtick.timeserver.config import Settings
from mqtick.timeserver.experiments import KEPT_EDGES, Experiments
from mqtick.timeserver.server import Server
from mqtick.timeserver.status import metrics, status, status_lines

__all__ = ["main"]

PROGRAM = "mqtick-timeserver"
CONFIG = "/etc/mqtick/timeserver.toml"
_SECOND = 1_000_000_000
_log = logging.getLogger("mqtick.timeserver")

EXAMPLES = """\
  mqtick-timeserver --broker mqtt://broker.lan
      serve this host's time, as good as chronyd says it is
  mqtick-timeserver --broker mqtt://broker.lan --trust-system-clock --interval-s 0.5
      serve it twice a second without asking chronyd
  mqtick-timeserver status
      ask the running server how it is"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return carry_out(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    parser = make_parser(PROGRAM, "Publish the time on an MQTT broker (IEEE 1451).", EXAMPLES)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="serve the time (the default)")
    add_run_flags(run, Settings, CONFIG)
    asked = commands.add_parser("status", help="show the running server's status")
    asked.add_argument("--json", action="store_true", help="for machines")
    asked.add_argument("--state-folder", default="", help="where status.json lies")
    words = sys.argv[1:] if arguments is None else arguments
    args = parser.parse_args(with_default_command(parser, words, ("run", "status")))
    if args.command == "status":
        return _show_status(args.state_folder, args.json)
    settings = read_settings(args, Settings, CONFIG, _check)
    if isinstance(settings, Exit):
        return settings
    try:
        _check(settings)
        return serve(settings)
    except PinError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ValueError as error:  # a broker's address, a key file, a name
        return fail(str(error), Exit.WRONG_USE)


def _check(settings: Settings) -> None:
    """Find what would fail later; ValueError or OSError."""
    broker_from(settings)
    check_metrics_listen(settings.metrics_listen)
    if not settings.formats:
        raise ValueError("formats is empty, so nothing would be served; precise is the usual one.")
    TopicTree(settings.prefix).request(settings.number, "x")
    if settings.keys_file:
        load_key_file(settings.keys_file).server()
    if settings.virtual_clock:
        VirtualClockSettings.from_text(settings.virtual_clock)
    if "1451.1.6" in settings.formats and settings.name:
        check_lns(settings.name)
    DraftTopics(settings.draft_location)


def open_doors(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each way in which somebody else's time could be taken for ours."""
    if not settings.keys_file:
        yield (
            "there are no keys (keys_file): whoever may publish on the broker's time topics can "
            "set every client's clock; docs/threat-model.md says what the access list must forbid"
        )
    unsigned = [name for name in settings.formats if name != "precise"]
    if unsigned:
        yield (
            f"formats has {', '.join(unsigned)}, whose messages carry no tags, keys or not: "
            "whoever may publish on their topics sets the clocks that follow them"
        )


def _show_status(folder: str, as_json: bool) -> int:
    try:
        found = read_status(status_path(PROGRAM, folder))
    except StatusError as error:
        return fail(str(error))
    if as_json:
        print(json.dumps({"age_ns": found.age_ns, "pid": found.pid, **found.values}, indent=1))
    else:
        print("\n".join(status_lines(found.values)))
        if found.age_ns > 5 * _SECOND:
            print(
                f"this status is {found.age_ns / 1e9:.0f} s old: the server does not run any more"
            )
    fresh = found.age_ns <= 5 * _SECOND
    good = fresh and found.values.get("state") == "synchronised"
    return Exit.GOOD if good else Exit.NOT_SYNCHRONISED


def _output(keys: PinKeys) -> Output | None:
    if keys.backend == "none":
        return None
    return open_output(PinSettings(**dataclasses.asdict(keys)))


def serve(settings: Settings) -> int:
    """Run until a signal."""
    loop = Loop()
    broker = broker_from(settings)
    keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
    clock: Clock = SystemClock()
    if settings.virtual_clock:
        clock = VirtualClock(VirtualClockSettings.from_text(settings.virtual_clock))
    pin, pps = _output(settings.pin), _output(settings.pps)
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
    )
    house = Housekeeping(
        PROGRAM,
        settings.state_folder,
        settings.metrics_listen,
        settings.realtime,
        status=lambda: status(server, time.monotonic_ns()),
        summary=lambda values: f"{values['state']}, {values['done'].get('times', 0)} messages",
        metrics=lambda values: metrics(dict(values)),
    )

    def tick() -> None:
        house.tick()
        server.tick()
        loop.call_lazily(*TICK_NS, tick)

    loop.stop_on_signals()
    read_keys_on_hangup(loop, settings.keys_file, server.use_keys)
    driver: PpsDriver | None = None
    if pps is not None:
        driver = PpsDriver(loop, pps, lambda time_ns: _raw_of_time(clock, server, time_ns))
        driver.start()
    if edges is not None:
        about = {
            **about_host(),
            **about_outputs({"time": pin, "pps": pps}),
            "settings": dataclasses.asdict(settings),
        }
        server.experiments = Experiments(server, edges, driver, lambda: about)
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
        for output in filter(None, (pin, pps)):
            output.close()
        loop.close()
    return Exit.GOOD


def _raw_of_time(clock: Clock, server: Server, time_ns: int) -> int | None:
    """Convert the served clock's time to CLOCK_MONOTONIC_RAW; None while nobody vouches for it."""
    if not server.reference.synchronised:
        return None
    return clock.monotonic_raw_ns(time_ns - clock.time_minus_raw_ns())


if __name__ == "__main__":
    sys.exit(main())
