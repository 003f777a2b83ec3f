"""Keysight's HDF5: after its description, for no file of an instrument was to be had."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqtick.analysis.readers.registry import open_capture
from mqtick.analysis.signals.capture import CaptureError
from mqtick.analysis.signals.edges import find_edges
from mqtick.analysis.signals.waveform import Waveform

h5py = pytest.importorskip("h5py")


def write(path: Path, channels: dict[str, dict[str, Any]], **scale: Any) -> Path:
    attributes = {"XInc": 1e-9, "XOrg": -5e-7, "YInc": 0.01, "YOrg": 0.5} | scale
    with h5py.File(path, "w") as file:
        for name, sets in channels.items():
            group = file.create_group(f"Waveforms/{name}")
            group.attrs.update({k: v for k, v in attributes.items() if v is not None})
            for called, samples in sets.items():
                group[called] = samples
    return path


def step(at: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.where(np.arange(1000) >= at, 280, -50).astype(np.int16)


def test_integers_are_scaled_and_floats_are_volts(tmp_path: Path) -> None:
    channels = {
        "Channel 1": {"Channel 1 Data": step(500)},
        "Channel 2": {"Channel 2 Data": (step(510) * 0.01).astype(np.float32)},
    }
    (capture,) = open_capture(write(tmp_path / "scope.h5", channels)).read()
    first, second = capture.signals.values()
    assert isinstance(first, Waveform)
    assert isinstance(second, Waveform)
    assert first.volts()[[0, -1]] == pytest.approx([0.0, 3.3])
    assert second.volts()[[0, -1]] == pytest.approx([-0.5, 2.8])
    edges = [find_edges(waveform)[0].instant_fs for waveform in (first, second)]
    assert edges[1] - edges[0] == 10_000_000
    assert (first.interval_fs, first.start_fs) == (1_000_000, -500_000_000)


def test_segments_are_captures_in_their_order(tmp_path: Path) -> None:
    sets = {f"Channel 1 Seg{k}Data": step(500 + k) for k in range(1, 12)}
    found = list(open_capture(write(tmp_path / "s.h5", {"Channel 1": sets})).read())
    edges = [find_edges(c.signals["Channel 1"])[0].instant_fs for c in found]  # type: ignore[arg-type]
    assert [edge - edges[0] for edge in edges] == [k * 10**6 for k in range(11)]


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        ({"XInc": None}, "XInc None"),
        ({"XInc": 0.0}, "not a valid interval"),
        ({"XInc": float("nan")}, "XInc"),
        ({"XOrg": 1e9}, "within 9000 s"),
        ({"YInc": float("inf")}, "YInc"),
        ({"XInc": "fast"}, "cannot be read"),
    ],
)
def test_scales_that_are_none_are_refused(scale: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", {"Channel 1": {"Channel 1 Data": step(5)}}, **scale)
    with pytest.raises(CaptureError, match=says):
        list(open_capture(path).read())


def test_other_hdf5_and_half_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["temperature"] = [1, 2]
    with pytest.raises(CaptureError, match=r"without the group 'Waveforms'.*temperature"):
        list(open_capture(path).read())
    whole = write(tmp_path / "w.h5", {"Channel 1": {"Channel 1 Data": step(5)}}).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CaptureError, match="cut short"):
        list(open_capture(path).read())


def test_an_enormous_data_set_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("Waveforms/Channel 1")
        group.attrs["XInc"] = 1e-9
        group.create_dataset("Channel 1 Data", (2**40,), "f4", chunks=(1024,))
    with pytest.raises(CaptureError, match="more than can be read"):
        list(open_capture(path).read())


def test_without_h5py_the_way_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.h5", {"Channel 1": {"Channel 1 Data": step(5)}})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(CaptureError, match=r"pip install 'mqtick\[captures\]'"):
        list(open_capture(path).read())
