"""DSView's .dsl, after DSView's own writer (storesession.cpp): logic channels, or a refusal."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError
from mqtick.recording.transitions import Transitions

HEADER = """[version]
version = 3
[header]
driver = DSLogic
device mode = 0
capturefile = data
total samples = {samples}
total probes = 2
total blocks = 2
samplerate = {rate}
trigger time = 1700000000000
trigger pos = 500
probe0 = SDA
 trigger0 = X
probe7 = {second}
"""
RISES = {0: 1_000, 7: 17_001}
SAMPLES = 20_003
BLOCK = 2_048
"""Octets of a block: here two, of which the last is not full."""


def written(
    path: Path,
    samples: object = SAMPLES,
    rate: str = "100 MHz",
    second: str = "SCL",
    without: str = "-",
) -> Path:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header", HEADER.format(samples=samples, rate=rate, second=second))
        file.writestr("decoders", "[]")
        for number, rise in RISES.items():
            bits = np.packbits(np.arange(SAMPLES) >= rise, bitorder="little").tobytes()
            for block in range(2):
                if (name := f"L-{number}/{block}") != without:
                    file.writestr(name, bits[block * BLOCK :][:BLOCK])
    path.write_bytes(stream.getvalue())
    return path


def test_channels_have_their_names_and_changes(tmp_path: Path) -> None:
    file = open_capture(written(tmp_path / "x.dsl"))
    (capture,) = file.read()
    assert (file.format, file.instrument) == ("DSView capture", "DSLogic")
    assert list(capture.signals) == ["SDA", "SCL"]
    for signal, rise in zip(capture.signals.values(), RISES.values(), strict=True):
        assert isinstance(signal, Transitions)
        (edge,) = signal.edges()  # and none from what fills the last octet
        assert (edge.instant_fs, edge.rising) == (rise * 10**7 - 5 * 10**6, True)
        assert edge.uncertainty_fs == 5 * 10**6


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"without": "L-7/1"}, "part L-7/1 is missing.*Export"),
        ({"without": "L-0/0"}, "part L-0/0 is missing.*Export"),
        ({"samples": 10**17}, "longer than 1,000,000 s"),
        ({"samples": 10**10}, "part L-0/2 is missing"),
        ({"samples": 0}, "has '0' samples"),
        ({"samples": -5}, "has '-5' samples"),
        ({"rate": ""}, "no samplerate"),
        ({"rate": "fast"}, "'1 MHz' would be"),
        ({"second": "SDA"}, "Two of its channels are called 'SDA'"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, str], says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.dsl", **changed)  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match=says) as error:
        list(open_capture(path).read())
    assert str(path) in str(error.value)


def test_whatever_is_changed_no_other_error_follows(tmp_path: Path) -> None:
    content = written(tmp_path / "x.dsl").read_bytes()
    path = tmp_path / "y.dsl"
    for at in range(30, len(content), 7):
        for octets in (content[:at], content[:at] + b"\xff" + content[at + 1 :]):
            path.write_bytes(octets)
            with contextlib.suppress(CaptureError):
                list(open_capture(path).read())
