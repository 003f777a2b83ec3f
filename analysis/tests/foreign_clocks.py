"""Lets allantools compute deviations, in the Python environment of other people's software."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

PYTHON = Path(__file__).parents[2] / ".venv-drivers" / "bin" / "python"
SCRIPT = Path(__file__).parent / "foreign" / "allantools_deviations.py"
_TIMEOUT_S = 120


def allantools(
    measure: str, x_s: npt.NDArray[np.float64], tau0_s: float, factors: Sequence[int]
) -> dict[str, Any]:
    """Return `factors` and `values` of `mtie`, `tdev` or `oadev`.

    Skips the test where allantools is not installed; MQTICK_DRIVERS=required makes it fail instead.
    """
    if not PYTHON.exists():
        sentence = "allantools is not installed; `make setup-drivers` does it."
        if os.environ.get("MQTICK_DRIVERS") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence)
    with tempfile.TemporaryDirectory() as name:
        path, out = Path(name) / "x.npy", Path(name) / "out.json"
        np.save(path, x_s)
        done = subprocess.run(
            [PYTHON, SCRIPT, path, repr(tau0_s), out, measure, *map(str, factors)],
            env={"PATH": os.environ.get("PATH", ""), "HOME": name, "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"allantools failed:\n{done.stdout}{done.stderr}"
        found: dict[str, Any] = json.loads(out.read_text())
        return found
