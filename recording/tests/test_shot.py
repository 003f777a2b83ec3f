"""A shot's file: what was written is what is read, and what is damaged says so."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording import shot
from mqtick.recording.edges import Edge
from mqtick.recording.shot import (
    CAPTURED,
    MISSED,
    DamagedShotError,
    Shot,
    expanded_octets,
    read_shot,
    read_waveforms,
    read_whole_shot,
    write_shot,
)
from mqtick.recording.waveform import Waveform


def waveform(codes: list[int], dtype: str = "int16") -> Waveform:
    return Waveform(np.array(codes, dtype), 0.04, 0.25, 10**6 + 1, -(10**9) - 3)


META = Shot(
    7, 50, CAPTURED, started_ns=1_790_000_000_123_456_789, latency_fs=87_370_000_001,
    skew_fs=-3, clock_fs={"b": 5}, edges={"a": Edge(-1, True)}, edges_found={"a": 2}, round=2,
    nodes={"client:x": {"edges": [{"before_ns": 1 << 62}]}}, simulated=True,
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_what_was_written_is_read(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "000007.npz"
    limits = np.iinfo(dtype)
    given_ = {"a": waveform([limits.min, limits.max, 10], dtype), "b c": waveform([1], dtype)}
    write_shot(path, META, given_)
    assert read_shot(path) == dataclasses.replace(META, source=str(path))
    assert read_shot(path).edges["a"].found == 2
    found = read_waveforms(path)
    assert set(found) == set(given_)
    for name, wave in found.items():
        assert wave.codes.dtype == dtype
        np.testing.assert_array_equal(wave.codes, given_[name].codes)
        assert (wave.interval_fs, wave.start_fs) == (10**6 + 1, -(10**9) - 3)
        assert (wave.volts_per_code, wave.code_at_zero) == (0.04, 0.25)
    assert set(read_waveforms(path, ["a"])) == {"a"}


def test_a_missed_shot_needs_no_waveform(tmp_path: Path) -> None:
    write_shot(tmp_path / "1.npz", Shot(1, 2, MISSED, "No trigger."), {})
    assert read_shot(tmp_path / "1.npz").reason == "No trigger."
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
    with pytest.raises(ValueError, match="which is not valid"):
        Shot(1, 2, "lost")


@given(cut=st.floats(0, 0.999), flip=st.integers(0, 1 << 20), value=st.integers(0, 255))
@settings(max_examples=150)
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
    for read in (read_shot, read_waveforms):
        with contextlib.suppress(DamagedShotError):
            read(path)  # type: ignore[operator]


@pytest.mark.parametrize(
    "meta",
    [[], {}, {"number": "1"}, {"number": 1, "round": 1, "subscribers": 1, "started_ns": 1}],
)
def test_a_meta_of_another_kind_is_damage(tmp_path: Path, meta: object) -> None:
    np.savez(tmp_path / "1.npz", meta=np.frombuffer(json.dumps(meta).encode(), np.uint8))
    with pytest.raises(DamagedShotError):
        read_shot(tmp_path / "1.npz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 0),
        ("number", 10**20),
        ("subscribers", 1 << 63),
        ("subscribers", -1),
        ("started_ns", 1 << 63),
        ("skew_fs", 10**400),
        ("clock_fs", {"p": 10**400}),
        ("edges_fs", {"p": None}),
        ("edges_found", {"p": "x"}),
        ("edges_found", {"p": 1 << 64}),
        ("simulated", "no"),
        ("reason", 7),
    ],
)
def test_a_value_that_cannot_be_is_damage(tmp_path: Path, name: str, value: object) -> None:
    meta = {**dataclasses.asdict(META), name: value}
    np.savez(tmp_path / "1.npz", meta=np.frombuffer(json.dumps(meta).encode(), np.uint8))
    with pytest.raises(DamagedShotError, match=name):
        read_shot(tmp_path / "1.npz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval_fs", 10**400),
        ("interval_fs", 1.5),
        ("start_fs", -(1 << 63)),
        ("start_fs", None),
        ("volts_per_code", 10**400),
        ("code_at_zero", "x"),
    ],
)
def test_a_scale_that_cannot_be_is_damage(tmp_path: Path, name: str, value: object) -> None:
    scale = {"volts_per_code": 1.0, "code_at_zero": 0.0, "interval_fs": 1, "start_fs": 0}
    said = {**dataclasses.asdict(META), "scales": {"a": {**scale, name: value}}}
    meta = np.frombuffer(json.dumps(said).encode(), np.uint8)
    np.savez(tmp_path / "1.npz", **{"meta": meta, "codes/a": np.zeros(9, np.uint8)})
    with pytest.raises(DamagedShotError):
        read_whole_shot(tmp_path / "1.npz")


def bomb(path: Path, octets: int, said: int | None = None, method: int = 8) -> Path:
    """Write a shot whose waveform expands to so many octets; `said` is what the directory says."""
    array = io.BytesIO()
    np.save(array, np.zeros(octets, np.uint8))
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("meta.npy", b"")
        file.writestr("codes/a.npy", array.getvalue())
    if said is not None:
        whole = len(array.getvalue()).to_bytes(4, "little")
        path.write_bytes(path.read_bytes().replace(whole, said.to_bytes(4, "little")))
    return path


def test_what_expands_to_more_than_the_bound_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path / "1.npz", 1 << 20)
    assert path.stat().st_size < 1 << 12
    assert expanded_octets(path) > 1 << 20
    monkeypatch.setattr(shot, "_LARGEST", 1 << 19)
    with pytest.raises(DamagedShotError, match="octets when expanded, more than 524288"):
        read_whole_shot(path)


@pytest.mark.parametrize(
    ("said", "method"), [(1000, zipfile.ZIP_DEFLATED), (None, zipfile.ZIP_BZIP2)]
)
def test_no_more_is_expanded_than_was_said(tmp_path: Path, said: int | None, method: int) -> None:
    path = bomb(tmp_path / "1.npz", 4 << 20, said, method)
    with zipfile.ZipFile(path) as archive:
        tracemalloc.start()
        with pytest.raises((ValueError, zipfile.BadZipFile)):
            shot._array(archive, "codes/a")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.array([print], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "1.npz", "w") as file:
        file.writestr("meta.npy", array.getvalue())
    with pytest.raises(DamagedShotError):
        read_shot(tmp_path / "1.npz")
