"""The content of run.json, and the check whether a run may be resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from mqtick.lab.runner.experiment import Experiment, flat
from mqtick.lab.runner.instrument import Instrument
from mqtick.lab.runner.plan import Batch, plan_to_json
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.protocol.experiments import about_host
from mqtick.recording.waveform import femtoseconds
from mqtick.service import chronyd
from mqtick.service.chronyd_csv import ChronydError
from mqtick.service.settings.load import render

_MAY_DIFFER: Final = ("title", "timeouts.", "keepalive_s", "connect_timeout_s")


def setup_of(experiment: Experiment, name: str) -> ScopeSettings:
    """Return the settings for an instrument of an experiment."""
    instrument = experiment.instrument[name]
    return ScopeSettings(
        channels=tuple(
            ChannelSettings(
                number=channel.input,
                volts_per_division=channel.volts_per_division,
                offset_v=channel.offset_v,
                probe=channel.probe,
                deskew_s=channel.deskew_ns * 1e-9,
            )
            for channel in experiment.channels_of(name).values()
        ),
        trigger=Trigger(
            experiment.channel[instrument.trigger].input,
            instrument.trigger_level_v,
            instrument.trigger_slope,
        ),
        span_s=instrument.span_us * 1e-6,
        before=instrument.before,
        points=instrument.points,
    )


def session_of(
    experiment: Experiment,
    instruments: Mapping[str, Instrument],
    nodes: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a description of the present participants: instruments, nodes, this host."""
    return {
        "started_ns": time.time_ns(),
        "instruments": {
            name: {
                "description": instrument.description,
                "simulated": instrument.simulated,
                "resource": experiment.instrument[name].resource,
                "setup": asdict(setup_of(experiment, name)),
            }
            for name, instrument in instruments.items()
        },
        "nodes": {node: dict(info) for node, info in nodes.items()},
        "runner": {**about_host(), "chrony": _chrony()},
    }


def _chrony() -> dict[str, Any]:
    try:
        return asdict(chronyd.tracking())
    except ChronydError as error:
        return {"error": str(error)}


def record_of(
    experiment: Experiment, plan: tuple[Batch, ...], session: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of run.json at the start of a run."""
    return {
        "title": experiment.title,
        "kind": experiment.kind,
        "software": session["runner"]["software"],
        "simulated": is_simulated(experiment, session),
        "experiment": render(experiment),
        "settings": flat(experiment),
        "plan": plan_to_json(plan),
        "order": experiment.measured(),
        "channels": {
            name: {**asdict(channel), "cable_delay_fs": femtoseconds(channel.cable_delay_ns * 1e-9)}
            for name, channel in experiment.channel.items()
        },
        "sessions": [dict(session)],
    }


def is_simulated(experiment: Experiment, session: Mapping[str, Any]) -> bool:
    """Whether an instrument, or a node whose pin is measured, is simulated."""
    measured = {channel.node for channel in experiment.channel.values()}
    return any(each["simulated"] for each in session["instruments"].values()) or any(
        bool(info.get("simulated")) for node, info in session["nodes"].items() if node in measured
    )


def first_difference(experiment: Experiment, record: Mapping[str, Any]) -> str:
    """Say which key of the experiment differs from that in the run's record, "" if none.

    Title and timeouts may change: they do not change what is measured.
    """
    before = record.get("settings")
    if not isinstance(before, dict):
        return "run.json does not say what the run was begun with"
    now = flat(experiment)
    for name in [*now, *(name for name in before if name not in now)]:
        if name.startswith(_MAY_DIFFER) or now.get(name) == before.get(name):
            continue
        return f"{name} is now {now.get(name, 'absent')!r} but was {before.get(name, 'absent')!r}"
    return ""
