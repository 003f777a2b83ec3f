"""Lets drivers that others wrote read a simulated instrument, in their own Python environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scope_rig import Simulated

_ROOT = Path(__file__).parents[2]
_PYTHON = _ROOT / ".venv-drivers" / "bin" / "python"
_SCRIPTS = Path(__file__).parent / "foreign"
_TIMEOUT_S = 60


def read_with(
    script: str, instrument: Simulated, channels: Sequence[int]
) -> dict[str, npt.NDArray[Any]]:
    """Run a script of `foreign/` as `python script.py RESOURCE OUT.npz CHANNEL...`.

    It reads each channel with its driver and writes the arrays t1, v1, t2, v2 (seconds, volts);
    they are returned. Skips the test where the drivers are not installed; MQTICK_DRIVERS=required
    makes it fail instead.
    """
    if not _PYTHON.exists():
        sentence = "The drivers of others are not installed; `make setup-drivers` does it."
        if os.environ.get("MQTICK_DRIVERS") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npz"
        # Some write settings and logs into the home directory: they get one to throw away.
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "LANG": "C.UTF-8"}
        arguments = [instrument.resource, str(out), *map(str, channels)]
        done = subprocess.run(
            [_PYTHON, _SCRIPTS / script, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{script} failed:\n{done.stdout}{done.stderr}"
        with np.load(out) as arrays:
            return {name: arrays[name] for name in arrays.files}
