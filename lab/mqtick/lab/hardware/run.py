"""The published experiment on the broker's RTL, as a run folder that a report reads like others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqtick.lab.hardware.copies import Fanout, measure
from mqtick.lab.hardware.datagrams import CYCLE_FS
from mqtick.lab.hardware.program import find_model
from mqtick.lab.hardware.way import Way
from mqtick.lab.runner.experiment import ChannelKeys, Experiment, InstrumentKeys, OrderKeys
from mqtick.lab.runner.plan import plan_of
from mqtick.lab.runner.record import record_of
from mqtick.protocol.experiments import about_host
from mqtick.protocol.topics import TopicTree
from mqtick.recording.judge import judge_triggered
from mqtick.recording.layout import layout_of
from mqtick.recording.run_folder import create_run, refuse_used, shot_path, write_record
from mqtick.recording.shot import CAPTURED, Shot, write_shot
from mqtick.recording.waveform import Waveform
from mqtick.service.settings.schema import key, table

_NODES: Final = {"publisher": "server:0", "first": "client:first", "last": "client:last"}
_INSTRUMENT: Final = "model"
# The record: pins that rise from 0 to 3.3 V within 8 ns, sampled every 2 ns in 8 bits.
_SAMPLE_FS: Final = 2_000_000
_RISE_FS: Final = 8_000_000
_LOW, _HIGH, _VOLTS = 40, 215, 3.3
_BEFORE: Final = 0.1
_LONGEST_WAY_NS: Final = 10_000_000.0


@dataclass(frozen=True, slots=True)
class HardwareRun:
    """The published experiment in simulated time."""

    title: str = key("hardware broker, RTL simulated", "What this is, for who reads the result.")
    model: str = key("", "The program that `make model-rtl` builds; empty: find it.")
    subscribers: tuple[int, ...] = key(
        (2, 10, 50, 100, 200, 400, 600), "Numbers of subscribers (N).", minimum=2, maximum=4095
    )
    shots: int = key(20, "Shots of each N.", minimum=1, maximum=10_000)
    rounds: int = key(2, "How often all N are measured.", minimum=1, maximum=100)
    seed: int = key(1, "Seed of the order of N, of the phases and of the receivers.", minimum=0)
    prefix: str = key("mqtick", "First level of the time topic, which is PREFIX/t/0.")
    way: Way = table(Way, "The way from the broker's boundary to the edges; assumed.")

    def __post_init__(self) -> None:
        """Raise ValueError for settings that cannot be run."""
        if not self.subscribers or len({*self.subscribers}) < len(self.subscribers):
            raise ValueError("subscribers must be one number or more, none of them twice.")
        TopicTree(self.prefix)
        if self.way.longest_ns > _LONGEST_WAY_NS:
            raise ValueError(
                f"the way takes up to {self.way.longest_ns / 1e6:g} ms, more than the "
                f"{_LONGEST_WAY_NS / 1e6:g} ms that a record can be long: lower its times."
            )


@dataclass(frozen=True, slots=True)
class HardwareResult:
    """The result by N: cycles from the first subscriber's copy to the last one's."""

    folder: Path
    spreads: dict[int, list[int]]


def run_hardware(
    settings: HardwareRun, folder: Path, say: Callable[[str], None] = lambda _text: None
) -> HardwareResult:
    """Run the experiment and save it in `folder`.

    ModelError if the model is missing or behaves wrongly; RunFolderError.
    """
    model = find_model(settings.model)
    refuse_used(folder)
    measured: dict[int, list[Fanout]] = {}
    for number in settings.subscribers:
        say(f"{number} subscribers")
        measured[number] = measure(
            model,
            number,
            settings.shots,
            link_gbps=settings.way.broker_link_gbps,
            prefix=settings.prefix,
            seed=settings.seed,
        )
    edges = {
        (number, shot): _edges_fs(settings, number, shot, one)
        for number, all_copies in measured.items()
        for shot, one in enumerate(all_copies)
    }
    span_fs = round(max(max(each.values()) for each in edges.values()) / (1 - 2 * _BEFORE))
    experiment = _experiment(settings, span_fs)
    plan = plan_of(experiment)
    record = _record(settings, experiment)
    create_run(folder, record)
    layout = layout_of(record)
    taken = dict.fromkeys(settings.subscribers, 0)
    for batch in plan:
        for shot_number in batch.numbers():
            edges_fs = edges[batch.subscribers, taken[batch.subscribers]]
            taken[batch.subscribers] += 1
            waveforms = {name: _waveform(at, span_fs) for name, at in edges_fs.items()}
            blank = Shot(
                shot_number,
                batch.subscribers,
                CAPTURED,
                started_ns=time.time_ns(),
                round=batch.round,
                simulated=True,
            )
            shot = judge_triggered(layout, waveforms, blank)
            write_shot(shot_path(folder, shot_number), shot, waveforms)
    write_record(folder, {**record, "ended": {"at_ns": time.time_ns(), "early_because": ""}})
    return HardwareResult(folder, {n: [one.spread for one in all_] for n, all_ in measured.items()})


def _edges_fs(settings: HardwareRun, number: int, shot: int, one: Fanout) -> dict[str, int]:
    """Return each channel's edge, fs after the publisher's."""
    payload = len(one.message.octets)
    edges = {"publisher": 0}
    for name, copy in (("first", one.copies[0]), ("last", one.copies[-1])):
        draw = random.Random(f"{settings.seed} {number} {shot} {name}")
        edges[name] = (
            settings.way.from_publisher_fs(payload)
            + (copy.cycle - one.message.cycle) * CYCLE_FS
            + settings.way.to_receiver_fs(len(copy.octets))
            + settings.way.receiver_fs(draw)
        )
    return edges


def _waveform(edge_fs: int, span_fs: int) -> Waveform:
    start_fs = -round(_BEFORE * span_fs)
    instants_fs = start_fs + _SAMPLE_FS * np.arange(span_fs // _SAMPLE_FS)
    share = np.clip((instants_fs - edge_fs) / _RISE_FS + 0.5, 0.0, 1.0)
    codes = np.rint(_LOW + (_HIGH - _LOW) * share).astype(np.uint8)
    return Waveform(codes, _VOLTS / (_HIGH - _LOW), float(_LOW), _SAMPLE_FS, start_fs)


def _experiment(settings: HardwareRun, span_fs: int) -> Experiment:
    return Experiment(
        title=settings.title,
        kind="skew",
        subscribers=settings.subscribers,
        shots=settings.shots,
        rounds=settings.rounds,
        seed=settings.seed,
        prefix=settings.prefix,
        broker="",
        instrument={
            _INSTRUMENT: InstrumentKeys(
                span_us=span_fs / 1e9,
                before=_BEFORE,
                points=span_fs // _SAMPLE_FS,
                trigger="publisher",
            )
        },
        channel={
            name: ChannelKeys(
                instrument=_INSTRUMENT,
                input=number,
                node=node,
                pin="time" if name == "publisher" else "arrival",
            )
            for number, (name, node) in enumerate(_NODES.items(), start=1)
        },
        order=OrderKeys(publisher="publisher", first="first", last="last"),
    )


def _record(settings: HardwareRun, experiment: Experiment) -> dict[str, Any]:
    session = {
        "started_ns": time.time_ns(),
        "instruments": {
            _INSTRUMENT: {
                "description": f"the broker's RTL, exact to its cycle of {CYCLE_FS / 1e6:g} ns; "
                f"around it, assumed: {settings.way}",
                "simulated": True,
                "resource": "",
                "setup": {},
            }
        },
        "nodes": {node: {"simulated": True} for node in _NODES.values()},
        "runner": about_host(),
    }
    record = record_of(experiment, plan_of(experiment), session)
    return {**record, "way": asdict(settings.way)}
