"""`mqtick-lab doctor`: finds causes of latency in a broker, one line per check."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import asdict, replace
from typing import Any

from mqtick.lab.brokers.findings import examine, verdict
from mqtick.lab.brokers.probes import SUBSCRIBERS, measure
from mqtick.mqtt.broker import BrokerError, broker_from, refuse_dialect
from mqtick.service.check import report
from mqtick.service.commandline import Exit, fail
from mqtick.service.settings.program import ConnectionSettings

_EPILOG = """\
examples:
  mqtick-lab doctor mqtt://broker.example
  mqtick-lab doctor mqtts://broker.example --ca-file ca.pem --username lab --password-file pw
  mqtick-lab doctor localhost:1884 --seconds 30 --json

exit codes: 0 good, 1 a fault was found or the broker cannot be reached, 2 wrong use"""
_PREFIX = re.compile(r"[^+#\0/$][^+#\0]{0,199}")
_FLAGS = ("username", "password_file", "ca_file", "certificate_file", "certificate_key_file")


def add(commands: Any) -> None:
    """Add the sub-command."""
    parser = commands.add_parser(
        "doctor",
        help="name what in a broker spoils latency",
        description=(
            f"Sends probes through the broker to {SUBSCRIBERS} subscribers of its own and names "
            "the faults that spoil latency, each by the pattern that it left in the delays."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "broker", metavar="BROKER", help="mqtt://HOST[:PORT], mqtt+udp://, mqtts:// ..."
    )
    parser.add_argument(
        "--prefix", default="mqtick", help="it uses the topics PREFIX/d/# [default mqtick]"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=10.0, help="how long to probe, 2 to 600 [default 10]"
    )
    parser.add_argument("--mqtt-version", choices=("5", "3.1.1"), default="5")
    for name in _FLAGS:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, metavar="FILE" if "file" in name else "NAME", default="")
    parser.add_argument("--json", action="store_true", help="print findings as JSON")
    parser.set_defaults(call=_call)


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 2 <= value <= 600:
        raise argparse.ArgumentTypeError(f"{text} is not between 2 and 600 seconds")
    return value


def _call(args: argparse.Namespace) -> int:
    if not _PREFIX.fullmatch(args.prefix) or args.prefix.endswith("/"):
        sentence = (
            f"--prefix {args.prefix!r} is not a topic prefix: leave out +, #, $, outer slashes"
        )
        return fail(sentence, Exit.WRONG_USE)
    keys = replace(
        ConnectionSettings(broker=args.broker, mqtt_version=args.mqtt_version),
        **{name: getattr(args, name) for name in _FLAGS},
    )
    try:
        broker = broker_from(keys)
        refuse_dialect(broker, "this doctor")
        if sys.stderr.isatty():
            print(f"probing {args.broker} for about {args.seconds:g} s ...", file=sys.stderr)
        checks = list(examine(measure(broker, args.prefix, args.seconds)))
    except BrokerError as error:
        return fail(str(error), Exit.WRONG_USE)
    good, sentence = verdict(checks)
    if args.json:
        findings = [asdict(check) for check in checks]
        print(json.dumps({"good": good, "verdict": sentence, "checks": findings}, indent=1))
    else:
        report(checks, as_json=False)
        print(f"verdict: {sentence}")
    return Exit.GOOD if good else Exit.FAILED
