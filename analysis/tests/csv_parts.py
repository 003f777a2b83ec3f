"""Captures as CSV, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mqtick.recording.waveform import Waveform, femtoseconds
from recording.tests.wave_parts import US


def levels(edge_us: float, points: int = 1000, span_us: float = 1000.0) -> Waveform:
    """A pin that rises once, between 0 and 3.3 V, in a record that begins 100 us before 0."""
    times = np.arange(points) * span_us / points - 100.0
    codes = (10 + 200 * np.clip((times - edge_us) / 2 + 0.5, 0, 1)).astype(np.uint8)
    return Waveform(codes, 3.3 / 200, 10.0, femtoseconds(span_us / points * 1e-6), -100 * US)


def write_csv(path: Path, edges_us: Sequence[float], points: int = 1000, cut: int = 0) -> Path:
    """A plain CSV with one column of volts for each edge."""
    waves = [levels(edge, points) for edge in edges_us]
    lines = ["time [us]," + ",".join(f"CH{number + 1}" for number in range(len(waves)))]
    for index in range(points):
        volts = ",".join(f"{wave.volts()[index]:.4f}" for wave in waves)
        lines.append(f"{waves[0].instant_fs(index) / US:.3f},{volts}")
    text = "\n".join(lines) + "\n"
    path.write_text(text[: len(text) - cut])
    return path
