"""Which channel of a capture is whose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.measurement import CLOCK, LATENCY, SKEW
from mqtick.recording.capture import Capture, CaptureError, Signal, find_signal
from mqtick.recording.edge_overrides import EVERY, EdgeOverrides, Rule
from mqtick.recording.layout import Advice, Channel, Layout, Trigger
from mqtick.recording.waveform import Waveform

PUBLISHER: Final = "publisher"
_REFERENCES: Final = (PUBLISHER, "reference")
FIRST: Final = "first"
LAST: Final = "last"


class NamingError(CaptureError):
    """What was said about the channels is impossible, whatever is in the files."""


class UnknownChannelError(CaptureError):
    """A capture has no channel of a given name; the text lists those that it has."""


def channels_of(capture: Capture) -> dict[str, str]:
    """Return name to channel if the file's own names are channel roles, else nothing."""
    names = {name.strip().casefold(): name for name in capture.signals}
    if any(name in names for name in _REFERENCES) or (FIRST in names and LAST in names):
        return names if len(names) > 1 else {}
    return {}


def layout_of_channels(
    channels: Mapping[str, str], options: CaptureOptions
) -> tuple[Layout, list[str]]:
    """Return who plays which part, and notes on what was assumed; NamingError."""
    (kind, nodes, first, last), notes = _parts(channels, options.kind)
    unknown = [name for name in options.cable_delay_fs if name not in nodes]
    if unknown:
        raise NamingError(
            f"A cable delay is given for {unknown[0]!r}, which is not a channel's name; there are: "
            f"{', '.join(nodes)}."
        )
    return Layout(
        kind,
        {name: Channel("", 0, name, "", options.cable_delay_fs.get(name, 0)) for name in nodes},
        {"": Trigger(nodes[0], options.edge)},
        publisher="" if nodes[0] == first else nodes[0],
        first=first,
        last=last,
        minimum_v=options.minimum_v,
        edge_overrides=options.edge_overrides,
        within_fs=options.within_fs,
        advice=Advice("record more before and after the trigger", "with --edge both"),
    ), notes


def _parts(
    channels: Mapping[str, str], kind: str
) -> tuple[tuple[str, tuple[str, ...], str, str], list[str]]:
    """Return the kind, the nodes (reference first), the first and the last subscriber; notes.

    The reference is the publisher. Of the others, those called first and last are that, else
    the first and the last one that was named.
    """
    names, notes = list(channels), []
    if len(names) < 2:
        raise NamingError(
            f"Only one channel is named ({', '.join(names)}), and there is nothing to compare it "
            "with; name a second one, as publisher=1,first=2."
        )
    reference = next((name for name in _REFERENCES if name in channels), "")
    others = [name for name in names if name != reference]
    if kind == CLOCK:
        reference = reference or names[0]
        if reference not in _REFERENCES:
            notes.append(f"The clocks are compared with {reference}, which was named first.")
        return (CLOCK, (reference, *(n for n in names if n != reference)), "", ""), notes
    if others == [LAST]:
        raise NamingError(
            f"There is only one subscriber, {LAST}, so it cannot be the last of "
            f"several. Call it {FIRST} ({PUBLISHER}=1,{FIRST}=2), or name the first one too: "
            f"{PUBLISHER}=1,{FIRST}=2,{LAST}=3."
        )
    first = FIRST if FIRST in others else next(name for name in others if name != LAST)
    rest = [name for name in others if name != first]
    last = LAST if LAST in rest else (rest[-1] if rest else "")
    if (first, last) not in {(FIRST, LAST), (FIRST, "")}:
        notes.append(
            f"{first} is taken as the first subscriber"
            + (f", and {last} as the last one" if last else "")
            + ": name the channels first and last to say which they are."
        )
    if not reference:
        reference = first
        notes.append(
            f"No channel is called {PUBLISHER}: there is no latency, and the skew is that of the "
            f"edges nearest to those of {first}."
        )
        if kind == LATENCY:
            raise NamingError(
                "The latency counts from the publisher's edge, but no channel is called "
                f"{PUBLISHER}; say which one it is, as {PUBLISHER}=1,{first}=2."
            )
    if kind == SKEW and not last:
        raise NamingError(
            f"Skew is between two subscribers, but only {first} is named; say which channel is "
            f"the last one's, as {LAST}=3."
        )
    nodes = tuple(dict.fromkeys(name for name in (reference, first, last, *others) if name))
    return (kind or (SKEW if last else LATENCY), nodes, first, last), notes


def edge_overrides_of(
    edge_overrides: EdgeOverrides, channels: Mapping[str, str], signals: Mapping[str, Signal]
) -> EdgeOverrides:
    """Return what was said by hand, by the names of `channels` (name to the file's channel).

    It may have been said by the file's own names. NamingError where there is no such channel, or
    where a threshold is given for a digital one.
    """
    names = {signal: name for name, signal in channels.items()}
    rules: dict[str, Rule] = {}
    for said, rule in edge_overrides.rules.items():
        name = said if said in channels else names.get(find_signal(signals, said) or "", "")
        if said != EVERY and not name:
            raise NamingError(
                f"Something is said of the edges of {said!r}, which is not a channel; there are: "
                f"{', '.join(channels)}."
            )
        if name in rules:
            raise NamingError(f"Something is said twice of the edges of {name} (as {said}).")
        rules[name] = rule
        of = signals.values() if said == EVERY else [signals[channels[name]]]
        limited = (rule.threshold_v, rule.hysteresis_v) != (None, None)
        if limited and not any(isinstance(signal, Waveform) for signal in of):
            raise NamingError(
                f"{name or 'Every channel'} is digital: its file has changes of level and no "
                "voltages, to which a threshold or a hysteresis could apply; leave it out."
            )
    return replace(edge_overrides, rules=rules)


def resolve(channels: Mapping[str, str], capture: Capture) -> dict[str, str]:
    """Return each name's channel in a capture; UnknownChannelError."""
    found: dict[str, str] = {}
    for name, wanted in channels.items():
        signal = find_signal(capture.signals, wanted)
        there = ", ".join(capture.signals) or "nothing"
        if signal is None:
            raise UnknownChannelError(
                f"there is no channel {wanted!r} (wanted for {name}); there is: {there}."
            )
        if signal in found.values():
            other = next(each for each, used in found.items() if used == signal)
            raise UnknownChannelError(
                f"channel {signal} is given for {other} and for {name}; there is: {there}."
            )
        found[name] = signal
    return found
