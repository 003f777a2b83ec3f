"""Captures of many events, for tests: made up, with a known truth."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mqtick.recording.shot import Shot, write_shot
from mqtick.recording.waveform import Waveform

US = 10**9


def pulses(late_us: Sequence[float], *, points: int = 21_000, seed: int = 0) -> Waveform:
    """Pulses of 3.3 V and 200 us, one each ms, each as late as is said; 1 MHz, with noise."""
    at = np.arange(float(points)) - 500
    volts = np.random.default_rng(seed).normal(0, 0.02, points)
    for number, late in enumerate(late_us):
        begin = 1000 * number + late
        volts += 3.3 * (np.clip(at - begin + 0.5, 0, 1) - np.clip(at - begin - 200, 0, 1))
    codes = np.clip(np.round(volts / 0.02) + 20, 0, 255).astype(np.uint8)
    return Waveform(codes, 0.02, 20.0, US, -500 * US)


def write_events(path: Path, *late_us: Sequence[float]) -> Path:
    """A shot of mqtick with one channel for each row: CH1, CH2, ..."""
    waves = {f"CH{n}": pulses(late, seed=n) for n, late in enumerate(late_us, start=1)}
    write_shot(path, Shot(simulated=True), waves)
    return path


def drawn_in(page: str) -> dict[str, dict[str, object]]:
    """What the script of a look's page draws, by the channel's name."""

    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return {lane["name"]: lane for lane in json.loads(found[1])["lanes"]}
