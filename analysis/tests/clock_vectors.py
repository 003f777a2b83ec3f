"""Time errors that are published, and the numbers that others computed of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.stability import Deviation, adev, mtie, tdev

VECTORS = Path(__file__).parent / "vectors"
NS = 1e9
Floats = npt.NDArray[np.float64]
MEASURES: dict[str, Callable[..., Deviation]] = {
    "mtie": mtie,
    "tdev": tdev,
    "adev": adev,
}
IN_SECONDS = {"mtie": 1 / NS, "tdev": 1 / NS, "adev": 1.0}


def integrated(frequencies: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(frequencies - frequencies.mean())))


def nist_1000() -> Floats:
    """The phase of the 1000 frequencies of NIST SP 1065, in s."""
    numbers = [1234567890]
    while len(numbers) < 1000:
        numbers.append(16807 * numbers[-1] % 2147483647)
    assert numbers[1:4] == [395529916, 1209410747, 633705974]  # as they are published
    return integrated(np.array(numbers) / 2147483647)


NBS_9 = integrated(np.array([892, 809, 823, 798, 671, 644, 883, 903, 677], float))


def vectors(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / name).read_text())
    return found
