"""Waveforms and layouts that several tests use."""

from __future__ import annotations

import numpy as np

from mqtick.recording.layout import Channel, Layout, Trigger
from mqtick.recording.waveform import Waveform

US = 10**9
POINTS, INTERVAL_FS, START_FS = 4000, US // 4, -100 * US


def wave(*edges_us: float, level: bool = False, low: int = 120, high: int = 200) -> Waveform:
    """Make a record of 1 ms from -100 us on, 40 mV a code, that changes level at each edge."""
    codes = np.full(POINTS, high if level else low, np.uint8)
    for at_us in edges_us:
        level = not level
        codes[round((at_us * US - START_FS) / INTERVAL_FS) :] = high if level else low
    codes[::7] += 1
    return Waveform(codes, 0.04, 120, INTERVAL_FS, START_FS)


def channel(
    number: int, node: str, pin: str = "arrival", instrument: str = "scope", delay_us: float = 0
) -> Channel:
    """Describe an input of 1 V per division around 1.65 V."""
    return Channel(instrument, number, node, pin, round(delay_us * US), 1.0, 1.65)


CHANNELS = {
    "pub": channel(1, "server:0", "time"),
    "near": channel(2, "client:first"),
    "far": channel(3, "client:last"),
}
SKEW_LAYOUT = Layout(
    "skew", CHANNELS, {"scope": Trigger("pub", "rising")}, publisher="pub", first="near", last="far"
)
PPS_LAYOUT = Layout(
    "clock",
    {
        "ref": channel(1, "server:0", "pps"),
        "early": channel(2, "client:a", "pps"),
        "late": channel(3, "client:b", "pps"),
    },
    {"scope": Trigger("ref", "rising")},
    publisher="ref",
)


def record_of(layout: Layout, **more: object) -> dict[str, object]:
    """Write a layout as the bench does in run.json."""
    return {
        "title": "µs",
        "kind": layout.kind,
        "simulated": False,
        "software": "mqtick 9",
        "order": {
            part: name for part in ("publisher", "first", "last") if (name := getattr(layout, part))
        },
        "channels": {
            name: {
                "instrument": each.instrument,
                "input": each.input,
                "node": each.node,
                "pin": each.pin,
                "cable_delay_ns": each.cable_delay_fs / 1e6,
                "cable_delay_fs": each.cable_delay_fs,
                "volts_per_division": each.volts_per_division,
                "offset_v": each.offset_v,
            }
            for name, each in layout.channels.items()
        },
        "settings": {
            key: value
            for name, trigger in layout.triggers.items()
            for key, value in (
                (f"instrument.{name}.trigger", trigger.channel),
                (f"instrument.{name}.trigger_slope", trigger.slope),
            )
        },
        **more,
    }
