"""From the waveforms of one shot of an experiment to its edges."""

from __future__ import annotations

from collections.abc import Mapping

from mqtick.analysis.runs import choose
from mqtick.analysis.runs.choose import Finding
from mqtick.analysis.runs.layout import Channel, Layout, Trigger
from mqtick.analysis.signals.waveform import Waveform, femtoseconds
from mqtick.lab.runner.experiment import Experiment

__all__ = ["judge", "layout_of"]


def layout_of(experiment: Experiment) -> Layout:
    """Return what is wired to what, as a report finds it in run.json."""
    return Layout(
        kind=experiment.kind,
        channels={
            name: Channel(
                instrument=channel.instrument,
                input=channel.input,
                node=channel.node,
                pin=channel.pin,
                cable_delay_fs=femtoseconds(channel.cable_delay_ns * 1e-9),
                volts_per_division=channel.volts_per_division,
                offset_v=channel.offset_v,
            )
            for name, channel in experiment.channel.items()
        },
        triggers={
            name: Trigger(instrument.trigger, instrument.trigger_slope)
            for name, instrument in experiment.instrument.items()
        },
        **experiment.measured(),
        interval_fs=femtoseconds(experiment.interval_s),
    )


def judge(experiment: Experiment, waveforms: Mapping[str, Waveform]) -> Finding:
    """Find the edges of all channels and compare them, as a report will do again."""
    return choose.judge(layout_of(experiment), waveforms)
