"""Tektronix' internal save format: long and short words, every kind of number, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.readers.registry import open_capture
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile
from mqtick.analysis.signals.edges import find_edges
from mqtick.analysis.signals.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"
CODES = np.array([-100] * 50 + [100] * 50, np.int16)

# The same preamble as three generations of instruments write it.
LONG = (
    ":WFMOUTPRE:BYT_NR {octets};BIT_NR 8;ENCDG {encoding};BN_FMT {numbers};BYT_OR {order};WFID "
    '"Ch2, DC coupling; 1.000V/div";NR_PT 100;PT_FMT {points};XUNIT "s";XINCR 4.0E-9;XZERO -2.0E-7;'
    'PT_OFF {offset};YUNIT "V";YMULT {step};YOFF {at};YZERO {zero};:CURVE '
)
SHORT = (
    ":WFMP:BYT_N {octets};BIT_N 8;ENC {encoding};BN_F {numbers};BYT_O {order};WFI "
    '"Ch2, DC coupling, 1.000V/div";NR_P 100;PT_F {points};XUN "s";XIN 4.0E-9;XZE -2.0E-7;'
    'PT_O {offset};YUN "V";YMU {step};YOF {at};YZE {zero};:CURV '
)
BARE = LONG.replace(":WFMOUTPRE:", "").replace(":CURVE ", "CURVE").replace(";", ";\n", 3)


def isf(
    samples: bytes | np.ndarray,  # type: ignore[type-arg]
    form: str = LONG,
    block: bytes | None = None,
    **changes: object,
) -> bytes:
    values: dict[str, object] = {
        "octets": 1,
        "encoding": "BIN",
        "numbers": "RI",
        "order": "MSB",
        "points": "Y",
        "offset": 0,
        "step": 0.04,
        "at": 0.0,
        "zero": 0.0,
    }
    octets = samples if isinstance(samples, bytes) else samples.tobytes()
    if block is None:
        block = b"#%d%d" % (len(str(len(octets))), len(octets))
    return form.format(**values | changes).encode() + block + octets + b"\n"


def opened(content: bytes, folder: Path, name: str = "T0001CH3.ISF") -> CaptureFile:
    path = folder / name
    path.write_bytes(content)
    return open_capture(path)


def only(content: bytes, folder: Path) -> tuple[str, Waveform]:
    (capture,) = opened(content, folder).read()
    ((name, signal),) = capture.signals.items()
    assert isinstance(signal, Waveform)
    return name, signal


def test_the_real_record_has_its_scale_and_times() -> None:
    found = list(open_capture(BIN / "T0000CH1_cut.isf").read())
    first, envelope = (capture.signals["CH1"] for capture in found)
    assert isinstance(first, Waveform)
    assert isinstance(envelope, Waveform)
    assert (first.interval_fs, first.start_fs) == (8_000_000, 34_604_800_000_000)
    # isfreader 1.2.0 gives 0.9 V for the first samples, which are 4: 0.2 * (4 + 0.5).
    assert first.volts()[:3] == pytest.approx([0.9] * 3)
    assert envelope.interval_fs == 16_000_000


@pytest.mark.parametrize("form", [LONG, SHORT, BARE])
def test_long_and_short_words_with_and_without_path_say_the_same(form: str, tmp_path: Path) -> None:
    name, waveform = only(isf(CODES.astype(np.int8), form, zero=1.5, at=10, offset=5), tmp_path)
    assert name == "CH2"
    assert (waveform.interval_fs, waveform.start_fs) == (4_000_000, -220_000_000)
    assert waveform.volts()[[0, -1]] == pytest.approx([1.5 - 110 * 0.04, 1.5 + 90 * 0.04])
    assert find_edges(waveform)[0].instant_fs == -22_000_000


@pytest.mark.parametrize("order", ["MSB", "LSB"])
@pytest.mark.parametrize(("numbers", "octets"), [("RI", 1), ("RP", 1), ("RI", 2), ("RP", 2)])
def test_every_kind_of_code_is_read(numbers: str, octets: int, order: str, tmp_path: Path) -> None:
    kind = f"{'>' if order == 'MSB' else '<'}{'i' if numbers == 'RI' else 'u'}{octets}"
    codes = (CODES + (0 if numbers == "RI" else 120)).astype(kind)
    content = isf(codes, octets=octets, numbers=numbers, order=order)
    _, waveform = only(content, tmp_path)
    assert waveform.codes.tolist() == codes.tolist()
    assert waveform.codes.dtype.isnative


def test_floats_and_text_are_read(tmp_path: Path) -> None:
    _, floats = only(isf(CODES.astype(">f4"), octets=4, numbers="FP"), tmp_path)
    assert floats.volts()[[0, -1]] == pytest.approx([-4, 4])
    text = ",".join(map(str, CODES.tolist())).encode()
    _, words = only(isf(text, encoding="ASC", block=b""), tmp_path)
    assert words.codes.tolist() == CODES.tolist()


@given(
    codes=st.lists(st.integers(-128, 127), min_size=1, max_size=50),
    step=st.floats(1e-4, 10).flatmap(lambda v: st.sampled_from([v, -v])),
    at=st.floats(-100, 100),
    zero=st.floats(-10, 10),
)
@settings(max_examples=30)
def test_volts_are_those_of_the_programmer_manual(
    codes: list[int], step: float, at: float, zero: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for kind, shift in (("i1", 0), ("u1", 128)):
        numbers = "RI" if kind == "i1" else "RP"
        samples = (np.array(codes) + shift).astype(kind)
        _, waveform = only(isf(samples, step=step, at=at, zero=zero, numbers=numbers), folder)
        expected = zero + step * (samples.astype(float) - at)
        assert waveform.volts() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_name_that_comes_again_begins_the_next_capture(tmp_path: Path) -> None:
    one, other = isf(CODES.astype(np.int8)), isf(CODES.astype(np.int8)).replace(b"Ch2", b"Ch1")
    found = list(opened(one + other + one, tmp_path).read())
    assert [list(capture.signals) for capture in found] == [["CH2", "CH1"], ["CH2"]]


def test_without_a_label_the_file_gives_the_name(tmp_path: Path) -> None:
    content = isf(CODES.astype(np.int8)).replace(b"WFID", b"NONE")
    assert only(content, tmp_path)[0] == "CH3"


def test_of_half_a_record_the_samples_that_are_there_are_read(tmp_path: Path) -> None:
    file = opened(isf(CODES.astype(np.int8))[:-31], tmp_path)
    (capture,) = file.read()
    assert capture.signals["CH2"].codes.size == 70  # type: ignore[union-attr]
    assert file.notes == ["Channel 'CH2' is cut short: 70 octets of 100 are there, and are read."]


def test_the_second_record_may_be_damaged(tmp_path: Path) -> None:
    whole = isf(CODES.astype(np.int8))
    file = opened(whole + whole.replace(b"XINCR 4.0E-9", b"XINCR nothing"), tmp_path)
    captures: list[Capture] = list(file.read())
    assert len(captures) == 1
    assert "were left out" in file.notes[0]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"XINCR 4.0E-9", b"XINCR 0", "not a valid interval"),
        (b"XINCR 4.0E-9", b"XINCR nan", "XINCR 'nan'"),
        (b"XZERO -2.0E-7", b"XZERO 1e9", "within 9000 s"),
        (b"YMULT 0.04", b"YMULT 0", "YMULT of 0"),
        (b"YOFF 0.0", b"YOFF 1e99", "YOFF '1e99'"),
        (b"BYT_NR 1", b"BYT_NR 7", "in '7' octets"),
        (b"#3100", b"#9999999999", ""),
        (b"#3100", b"#3abc", "a block of b'abc'"),
        (b"#3100", b"-3100", "no block of samples"),
        (b"ENCDG BIN", b"ENCDG ASC", "not numbers"),
        (b"#3100", b"#10", "no complete record"),
    ],
)
def test_a_preamble_that_cannot_be_is_refused(
    old: bytes, new: bytes, says: str, tmp_path: Path
) -> None:
    content = isf(CODES.astype(np.int8))
    assert old in content
    file = opened(content.replace(old, new), tmp_path)
    if not says:
        assert len(list(file.read())) == 1
        return
    with pytest.raises(CaptureError, match=says):
        list(file.read())
