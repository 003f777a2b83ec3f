"""A shot's file: what was written is what is read, and what is damaged says so."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.runs.shot import (
    CAPTURED,
    MISSED,
    DamagedShotError,
    ShotMeta,
    read_meta,
    read_waveforms,
    write_shot,
)
from mqtick.analysis.signals.waveform import Waveform


def waveform(codes: list[int], dtype: str = "int16") -> Waveform:
    return Waveform(np.array(codes, dtype), 0.04, 0.25, 10**6 + 1, -(10**9) - 3)


META = ShotMeta(
    7, 2, 50, CAPTURED, started_ns=1_790_000_000_123_456_789, latency_fs=87_370_000_001,
    skew_fs=-3, clock_fs={"b": 5}, edges_fs={"a": -1}, edges_found={"a": 2},
    nodes={"client:x": {"edges": [{"before_ns": 1 << 62}]}}, simulated=True,
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_what_was_written_is_read(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "000007.npz"
    limits = np.iinfo(dtype)
    given_ = {"a": waveform([limits.min, limits.max, 10], dtype), "b c": waveform([1], dtype)}
    write_shot(path, META, given_)
    assert read_meta(path) == META
    found = read_waveforms(path)
    assert set(found) == set(given_)
    for name, wave in found.items():
        assert wave.codes.dtype == dtype
        np.testing.assert_array_equal(wave.codes, given_[name].codes)
        assert (wave.interval_fs, wave.start_fs) == (10**6 + 1, -(10**9) - 3)
        assert (wave.volts_per_code, wave.code_at_zero) == (0.04, 0.25)
    assert set(read_waveforms(path, ["a"])) == {"a"}


def test_a_missed_shot_needs_no_waveform(tmp_path: Path) -> None:
    write_shot(tmp_path / "1.npz", ShotMeta(1, 1, 2, MISSED, "No trigger."), {})
    assert read_meta(tmp_path / "1.npz").reason == "No trigger."
    assert read_waveforms(tmp_path / "1.npz") == {}


def test_a_crash_while_writing_leaves_no_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_shot(tmp_path / "1.npz", META, {})
    assert list(tmp_path.iterdir()) == []


def test_an_outcome_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="which is none"):
        ShotMeta(1, 1, 2, "lost")


@given(cut=st.floats(0, 0.999), flip=st.integers(0, 1 << 20), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_damage_is_said_and_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "000007.npz"
    write_shot(path, META, {"a": waveform(list(range(200)))})
    octets = bytearray(path.read_bytes())
    octets[flip % len(octets)] = value
    if flip % 2:
        octets = octets[: int(len(octets) * cut)]
    path.write_bytes(octets)
    for read in (read_meta, read_waveforms):
        with contextlib.suppress(DamagedShotError):
            read(path)  # type: ignore[operator]


@pytest.mark.parametrize(
    "meta",
    [[], {}, {"number": "1"}, {"number": 1, "round": 1, "subscribers": 1, "started_ns": 1}],
)
def test_a_meta_of_another_kind_is_damage(tmp_path: Path, meta: object) -> None:
    np.savez(tmp_path / "1.npz", meta=np.frombuffer(json.dumps(meta).encode(), np.uint8))
    with pytest.raises(DamagedShotError):
        read_meta(tmp_path / "1.npz")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.array([print], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "1.npz", "w") as file:
        file.writestr("meta.npy", array.getvalue())
    with pytest.raises(DamagedShotError):
        read_meta(tmp_path / "1.npz")
