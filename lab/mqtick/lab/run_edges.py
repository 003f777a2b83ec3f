"""From the waveforms of one shot to its edges, or to the sentence why they are of no use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqtick.analysis.edges import Edge, EdgeError, find_edges
from mqtick.analysis.waveform import Waveform, femtoseconds
from mqtick.lab.experiment import ChannelKeys, Experiment

__all__ = ["Finding", "judge"]

_LEAST_V: Final = 0.5
_CLIPPED_SHARE: Final = 0.01
_FLAT_SHARE: Final = 0.25
_HALF_SCREEN: Final = 4.0
"""Divisions from the middle of the screen to its edge; converters of some families reach on."""
_TOLERANCE_FS: Final = femtoseconds(1e-6)
"""How far the edge that triggered may seem to be from the trigger, by what deskew leaves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a shot shows; `reason` is "" where it can be used. Instants as in `ShotMeta`."""

    reason: str = ""
    edges_fs: Mapping[str, int] = field(default_factory=dict)
    edges_found: Mapping[str, int] = field(default_factory=dict)
    latency_fs: int | None = None
    skew_fs: int | None = None
    clock_fs: Mapping[str, int] = field(default_factory=dict)


class _UnusableError(ValueError):
    pass


def judge(experiment: Experiment, waveforms: Mapping[str, Waveform]) -> Finding:
    """Find the edges of all channels, take cable delays off, and compare them.

    Every channel's instants count from the trigger edge of its own instrument, so that those of
    several instruments compare where all were triggered by one pin.
    """
    found: dict[str, list[Edge]] = {}
    try:
        needed = _needed(experiment)
        for name, waveform in waveforms.items():
            found[name] = _edges(experiment, name, waveform, needed=name in needed)
        counts = {name: len(edges) for name, edges in found.items()}
        origins = {
            name: _trigger_fs(experiment, name, found[instrument.trigger], waveforms)
            for name, instrument in experiment.instrument.items()
        }
        for name, edges in found.items():
            origin_fs = origins[experiment.channel[name].instrument]
            delay_fs = _delay_fs(experiment.channel[name])
            found[name] = [
                Edge(edge.instant_fs - delay_fs - origin_fs, edge.rising) for edge in edges
            ]
        if experiment.kind == "clock":
            return _clock(experiment, found, counts)
        return _order(experiment, found, counts)
    except ValueError as fault:  # of ours, or what no waveform should be
        return Finding(
            reason=str(fault), edges_found={name: len(edges) for name, edges in found.items()}
        )


def _needed(experiment: Experiment) -> set[str]:
    triggers = {instrument.trigger for instrument in experiment.instrument.values()}
    if experiment.kind == "clock":
        return set(experiment.channel)
    return triggers | set(experiment.measured().values())


def _delay_fs(channel: ChannelKeys) -> int:
    return femtoseconds(channel.cable_delay_ns * 1e-9)


def _shown(experiment: Experiment, name: str) -> str:
    channel = experiment.channel[name]
    return f"{name} (input {channel.input}, pin {channel.pin} of {channel.node})"


def _edges(experiment: Experiment, name: str, waveform: Waveform, *, needed: bool) -> list[Edge]:
    try:
        _refuse_clipped(experiment, name, waveform)
        edges = find_edges(waveform, _LEAST_V)
    except EdgeError as error:
        if not needed:
            return []
        raise _UnusableError(
            f"Fewer edges than channels: {_shown(experiment, name)} has none. {error} Or its edge "
            f"lies outside the record, {_window(waveform)}: then lengthen span_us "
            "or raise before."
        ) from None
    if needed and not edges:
        raise _UnusableError(
            f"Fewer edges than channels: {_shown(experiment, name)} has none in the record, "
            f"{_window(waveform)}; lengthen span_us, or look whether the pin is driven."
        )
    return edges


def _window(waveform: Waveform) -> str:
    end_fs = waveform.instant_fs(waveform.codes.size - 1)
    return f"{waveform.start_fs / 1e9:.1f} to {end_fs / 1e9:.1f} us around the trigger"


def _refuse_clipped(experiment: Experiment, name: str, waveform: Waveform) -> None:
    """Refuse a level at the converter's limits, or cut flat beyond the screen."""
    channel = experiment.channel[name]
    codes = waveform.codes
    if not codes.size or int(codes.max()) - int(codes.min()) < 2:
        return  # a logic analyser's one bit has nothing to clip
    limits = np.iinfo(codes.dtype)
    clipped = False
    for extreme in (int(codes.min()), int(codes.max())):
        volts = (extreme - waveform.code_at_zero) * waveform.volts_per_code
        divisions = abs(volts - channel.offset_v) / channel.volts_per_division
        held = int(np.count_nonzero(codes == extreme))
        at_limit = extreme in (limits.min, limits.max) and held > _CLIPPED_SHARE * codes.size
        cut = divisions > _HALF_SCREEN and held > _FLAT_SHARE * codes.size
        clipped = clipped or at_limit or cut
    if clipped:
        raise _UnusableError(
            f"{_shown(experiment, name)} is clipped: its level lies beyond the "
            f"{channel.volts_per_division:g} V a division around {channel.offset_v:g} V; raise "
            "volts_per_division, or correct offset_v and probe."
        )


def _trigger_fs(
    experiment: Experiment,
    instrument: str,
    edges: list[Edge],
    waveforms: Mapping[str, Waveform],
) -> int:
    """Return the instant of the edge that triggered, cable delay taken off, in fs."""
    keys = experiment.instrument[instrument]
    waveform = waveforms[keys.trigger]
    span_fs = waveform.codes.size * waveform.interval_fs
    wanted = {"rising": (True,), "falling": (False,)}.get(keys.trigger_slope, (True, False))
    right = [edge.instant_fs for edge in edges if edge.rising in wanted]
    nearest = min(right, key=abs, default=None)
    limit_fs = max(span_fs // 100, 5 * waveform.interval_fs, _TOLERANCE_FS)
    if nearest is None or abs(nearest) > limit_fs:
        seen = (
            f"has no {keys.trigger_slope} edge"
            if nearest is None
            else f"has its nearest {nearest / 1e9:.1f} us away from it"
        )
        raise _UnusableError(
            f"{instrument} was triggered by something else than the edge of "
            f"{_shown(experiment, keys.trigger)}, which {seen}; look at trigger source, level and "
            "slope, and whether the probes are on the pins that the experiment names."
        )
    return nearest - _delay_fs(experiment.channel[keys.trigger])


def _order(
    experiment: Experiment, found: Mapping[str, list[Edge]], counts: Mapping[str, int]
) -> Finding:
    parts = experiment.measured()
    triggers = {instrument.trigger for instrument in experiment.instrument.values()}
    marks = {name: min(found[name], key=lambda edge: abs(edge.instant_fs)) for name in triggers}
    rising = {mark.rising for mark in marks.values()}
    chosen = {name: mark.instant_fs for name, mark in marks.items()}
    for name, edges in found.items():
        if name in chosen or not edges:
            continue
        # A pulse that began before the record ends within it: its end is not the edge.
        alike = [edge for edge in edges if edge.rising in rising] if len(edges) > 1 else []
        chosen[name] = (alike or edges)[0].instant_fs
    cause_fs = chosen.get(parts.get("publisher", ""))
    first = chosen.get(parts.get("first", ""))
    last = chosen.get(parts.get("last", ""))
    return Finding(
        edges_fs=chosen,
        edges_found=counts,
        latency_fs=None if cause_fs is None or first is None else first - cause_fs,
        skew_fs=None if first is None or last is None else last - first,
    )


def _clock(
    experiment: Experiment, found: Mapping[str, list[Edge]], counts: Mapping[str, int]
) -> Finding:
    """Compare each pps edge with the reference's: the nearest of the same direction."""
    reference = experiment.order.publisher
    instrument = experiment.instrument[experiment.channel[reference].instrument]
    slope = {"rising": (True,), "falling": (False,)}.get(instrument.trigger_slope, (True, False))
    right = [edge for edge in found[reference] if edge.rising in slope] or found[reference]
    mark = min(right, key=lambda edge: abs(edge.instant_fs))
    chosen = {reference: mark.instant_fs}
    for name, edges in found.items():
        if name == reference:
            continue
        alike = [edge for edge in edges if edge.rising == mark.rising] or edges
        chosen[name] = min((e.instant_fs for e in alike), key=lambda at: abs(at - mark.instant_fs))
    clock_fs = {name: at - mark.instant_fs for name, at in chosen.items() if name != reference}
    return Finding(edges_fs=chosen, edges_found=counts, clock_fs=clock_fs)
