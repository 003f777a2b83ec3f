"""The flags that say what files of captures do not say themselves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TypeVar

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.commands.common import WrongUseError, number_in
from mqtick.analysis.commands.quantities import (
    count,
    duration_fs,
    hysteresis_v,
    instant_fs,
    names,
    table_of,
    threshold_v,
)
from mqtick.recording.edge_overrides import EVERY, EdgeOverrides, Rule
from mqtick.recording.waveform import femtoseconds

Value = TypeVar("Value")


def add_capture_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says which channel is whose, and how edges are found and paired."""
    parser.add_argument(
        "--channels",
        type=_table,
        default={},
        metavar="NAME=CHANNEL,...",
        help="which channel of the files is whose: publisher (or reference), first, last, and any "
        "other name",
    )
    parser.add_argument(
        "--kind", choices=("latency", "skew", "clock"), default="", help="what was measured"
    )
    parser.add_argument(
        "--cable-delay",
        type=_delays,
        default={},
        metavar="NAME=NS,...",
        help="delay of a channel's cable and probe in ns, to be subtracted",
    )
    parser.add_argument(
        "--edge",
        choices=("rising", "falling", "both"),
        default="rising",
        help="which edges of the publisher are events (default rising)",
    )
    parser.add_argument(
        "--minimum-v",
        type=positive,
        default=0.5,
        metavar="V",
        help="least amplitude of a signal in volts (default 0.5)",
    )
    parser.add_argument(
        "--every-event",
        action="store_true",
        help="each edge of the publisher is an event, in a triggered record too: 100 messages in "
        "one record are 100 measurements",
    )
    parser.add_argument(
        "--within",
        type=duration_fs,
        default=0,
        metavar="TIME",
        help="with --every-event: the longest time from an event to an answer, such as 800us "
        "(default: the usual time between two events)",
    )
    _add_override_flags(parser)


def capture_options(args: argparse.Namespace) -> CaptureOptions:
    """Return what these flags say; WrongUseError where they contradict each other."""
    if args.within and not args.every_event:
        raise WrongUseError(
            "--within counts where a record has many events; give --every-event too, or leave it "
            "out."
        )
    return CaptureOptions(
        channels=args.channels,
        kind=args.kind,
        cable_delay_fs=args.cable_delay,
        edge=args.edge,
        minimum_v=args.minimum_v,
        edge_overrides=_edge_overrides_of(args),
        every_event=args.every_event,
        within_fs=args.within,
    )


def _add_override_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says how edges are found, where finding them fails."""
    group = parser.add_argument_group(
        "by hand, where edges are not found as they should be (see `mqtick-report look`)"
    )
    each = "[NAME=]{},..."
    group.add_argument(
        "--threshold", type=table_of(threshold_v), default={}, metavar=each.format("VOLTS"),
        help="voltage whose crossing is an edge, of all channels or of some: 1.65V, "
        "first=1.65V,last=900mV (default: halfway between the two levels)",
    )  # fmt: skip
    group.add_argument(
        "--hysteresis", type=table_of(hysteresis_v), default={}, metavar=each.format("VOLTS"),
        help="width of the band around the threshold, half above and half below, which the signal "
        "has to leave before its next edge counts (default: half the amplitude, or more if noisy)",
    )  # fmt: skip
    group.add_argument(
        "--invert", type=names, default=(), metavar="NAME,...",
        help="channels whose falling edges count as rising ones, and the other way round; 'all'",
    )  # fmt: skip
    group.add_argument(
        "--skip", type=table_of(count), default={}, metavar=each.format("N"),
        help="leave out the first N edges (rising and falling) of each record",
    )  # fmt: skip
    group.add_argument(
        "--from", dest="begin_fs", type=instant_fs, metavar="TIME",
        help="use only what comes from this time on, counted from the trigger (or from the start "
        "of a record without one): -2ms",
    )  # fmt: skip
    group.add_argument(
        "--to", dest="end_fs", type=instant_fs, metavar="TIME",
        help="use only what comes up to this time",
    )  # fmt: skip


def _edge_overrides_of(args: argparse.Namespace) -> EdgeOverrides:
    """Return what the flags say; WrongUseError where they contradict each other."""
    if None not in (args.begin_fs, args.end_fs) and args.begin_fs >= args.end_fs:
        raise WrongUseError("--from is not before --to, so nothing lies between them.")
    inverted = dict.fromkeys(args.invert, True)
    tables = (args.threshold, args.hysteresis, inverted, args.skip)
    names = dict.fromkeys(name for table in tables for name in table)

    def of(table: Mapping[str, Value], name: str, default: Value) -> Value:
        return table.get(name, table.get(EVERY, default))

    rules = {
        name: Rule(
            of(args.threshold, name, None),
            of(args.hysteresis, name, None),
            of(inverted, name, False),
            of(args.skip, name, 0),
        )
        for name in names
    }
    return EdgeOverrides(rules, args.begin_fs, args.end_fs)


def _table(text: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in text.split(",")]
    for name, _, value in pairs:
        if not name.strip() or not value.strip():
            raise argparse.ArgumentTypeError(
                f"{text!r} is not NAME=VALUE,NAME=VALUE, such as publisher=1,first=2,last=3"
            )
    table = {name.strip(): value.strip() for name, _, value in pairs}
    if len(table) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} has a name twice")
    return table


def _delays(text: str) -> dict[str, int]:
    try:
        return {name: femtoseconds(float(ns) * 1e-9) for name, ns in _table(text).items()}
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NANOSECONDS,...") from None


def positive(text: str) -> float:
    """Return a number above 0; ArgumentTypeError."""
    return number_in(text, lambda value: 0 < value < 1e6, "is not above 0")
