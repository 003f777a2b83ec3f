"""Proprietary files that the optional package RigolWFM reads: captures of what it finds in them.

Taken from it are codes, volts and the interval of the samples. Its time axis is not: some of its
families have one that includes the end point, which stretches a record by a sample.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.format import Format
from mqtick.recording.bits import transitions_of_bits
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import (
    add_waveform,
    channel_of,
    interval_fs,
    naming,
    opened,
    reading,
    short_decimal,
    start_fs,
    text,
)
from mqtick.recording.waveform import Waveform

NEEDS: Final = "RigolWFM"
_LARGEST: Final = 1 << 30
"""RigolWFM holds several copies of a file in memory."""
_HEAD: Final = 1 << 14

_RIGOL: Final = {
    b"\xa5\xa5\xa4\x01": "B",
    b"\xa1\xa5\x00\x00": "C",
    b"\xa5\xa5\x00\x00": "auto",  # C, D or E, by the file's size
    b"\xa5\xa5\x38\x00": "auto",  # 2000, 4000 or 6000, by the model in it
    b"\x01\xff\xff\xff": "Z",
}


def _opener(name: str, model_of: Callable[[bytes], str]) -> Callable[[Path], CaptureFile]:
    def opened(path: Path) -> CaptureFile:
        notes: list[str] = []
        parsed = [_parsed(path, name, model_of)]  # for the first reader

        def read() -> Iterator[Capture]:
            found = parsed.pop() if parsed else _parsed(path, name, model_of)
            capture = _capture(path, found, notes)
            yield from _segments(path, capture) if found.parser_name == "lecroy_trc" else [capture]

        words = (parsed[0].header_name, parsed[0].serial_number)
        return CaptureFile(path, name, " ".join(str(word) for word in words if word), read, notes)

    return opened


@contextlib.contextmanager
def by_rigolwfm(path: Path, name: str) -> Iterator[None]:
    """Let RigolWFM read a file: whatever it raises becomes CaptureError, and what it says is lost.

    CaptureError too where the package cannot be imported, or the file is too large for it.
    """
    try:
        # It prints its doubts, and warns of numbers that overflow.
        with (
            reading(path),
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            size = path.stat().st_size
            if size > _LARGEST:
                raise CaptureError(
                    f"{path} has {size} octets, more than the {_LARGEST} up to which {name} files "
                    "are read; record a shorter span, or export as CSV."
                )
            yield
    except CaptureError:
        raise
    except ImportError as error:
        raise CaptureError(
            f"{path} is a {name} file. The package RigolWFM reads those, but it cannot be imported "
            f"({error}). Install it with `pip install 'mqtick[captures]'`, or export as CSV."
        ) from error
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise CaptureError(
            f"{path} begins as a {name} file, but RigolWFM cannot read it ({said}). It may be cut "
            "short, or of an unknown model; copy or save it again, or export it as CSV."
        ) from error


def _parsed(path: Path, name: str, model_of: Callable[[bytes], str]) -> Any:
    with opened(path) as stream, naming(path):
        model = model_of(stream.read(_HEAD))
    with by_rigolwfm(path, name):
        from RigolWFM.wfm import Wfm  # noqa: PLC0415 - an optional package, and a slow one

        return Wfm.from_file(str(path), model)


def _capture(path: Path, found: Any, notes: list[str]) -> Capture:
    signals: dict[str, Signal] = {}
    for channel in found.channels:
        _add_channel(path, channel, str(found.parser_name), signals, notes)
    lines = found.logic_channels or {}
    if lines:
        seconds = float(found.logic_seconds_per_point or 0)
        first = float(found.logic_times[0]) if found.logic_times is not None else 0.0
        timing = (interval_fs(seconds, path, "its logic"), start_fs(first, path, "its logic"))
        for line, bits in lines.items():
            levels = (np.asarray(bits) != 0).astype(np.uint8)
            signals[line] = transitions_of_bits(line, Waveform(levels, 1.0, 0.0, *timing))
    if not signals:
        raise CaptureError(" ".join([f"{path} has no channel with samples.", *notes]))
    if found.parser_name == "tek_isf" and len(_RECORD.findall(path.read_bytes())) > 1:
        notes.append("Of several records in the file only the first one was read.")
    return Capture(signals)


_WAVEDESC: Final = {b"LECROY_2_3": ("4i", 36, 144), b"LECROY_1_0": ("3i", 36, 108)}
"""Of a LeCroy template: the lengths of what is in front of the samples, where they are, and where
the number of segments is. The last length is that of the trigger times."""


def _segments(path: Path, joined: Capture) -> Iterator[Capture]:
    """Yield the segments of LeCroy's sequence mode, which RigolWFM takes for one record.

    Each segment has its own trigger, and how long before it its first sample was (TRIGTIME).
    CaptureError where the file does not add up.
    """
    octets = path.read_bytes()
    octets = octets[octets.index(b"WAVEDESC") :]
    order = "<" if octets[34] else ">"
    form, at, place = _WAVEDESC.get(octets[16:26], _WAVEDESC[b"LECROY_2_3"])
    *before, length = struct.unpack_from(f"{order}{form}", octets, at)
    (count,) = struct.unpack_from(f"{order}i", octets, place)
    if count <= 1:
        yield joined
        return
    ((name, whole),) = joined.signals.items()
    assert isinstance(whole, Waveform)
    size, rest = divmod(whole.codes.size, count)
    if rest or length < 16 * count or len(octets) < sum(before) + length:
        raise CaptureError(
            f"{path} holds {count} segments of a sequence and {whole.codes.size:,} samples, but "
            "not when each was triggered. Save it again, or switch the sequence mode off."
        )
    begun_ns = _date_ns(struct.unpack_from(f"{order}d4Bh", octets, 296))
    for number in range(count):
        after_s, offset_s = struct.unpack_from(f"{order}2d", octets, sum(before) + 16 * number)
        codes = whole.codes[number * size : (number + 1) * size]
        begin_fs = start_fs(offset_s, path, f"segment {number + 1}")
        started_ns = None if begun_ns is None else begun_ns + round(after_s * 1e9)
        yield Capture({name: replace(whole, codes=codes, start_fs=begin_fs)}, started_ns=started_ns)


def _date_ns(stated: tuple[float, int, int, int, int, int]) -> int | None:
    """Return seconds, minute, hour, day, month and year in ns of the Unix epoch, None if none."""
    seconds, minute, hour, day, month, year = stated
    try:
        date = datetime(year, month, day, hour, minute, tzinfo=UTC)
        return int(date.timestamp()) * 10**9 + round(seconds * 1e9)
    except (ValueError, OverflowError):
        return None


def _name(path: Path, channel: Any, parser: str) -> str:
    """Return what the file calls a channel; Tektronix' files have one, which is always CH 1."""
    if parser not in ("tek_isf", "tek_wfm"):
        return str(channel.name).replace(" ", "")
    label = str(channel.waveform.header.trace_label).partition(",")[0]  # "Ch2, DC coupling, ..."
    label = text(label.encode("latin-1", "replace"))
    return label.upper() if re.fullmatch(r"(?i)ch\d", label) else label or channel_of(path)


def _add_channel(
    path: Path, channel: Any, parser: str, signals: dict[str, Signal], notes: list[str]
) -> None:
    name = _name(path, channel, parser)
    if channel.volts is None or channel.times is None or not len(channel.volts):
        notes.append(f"Channel {name} was left out: it has no samples.")
        return
    volts = np.asarray(channel.volts, np.float64)
    timing = (
        interval_fs(_interval_s(channel), path, f"channel {name}"),
        start_fs(short_decimal(float(channel.times[0])), path, f"channel {name}"),
    )
    # Only these families' codes are those of the file; the others' are made of their volts.
    scaled = _codes(channel.raw, volts) if parser.startswith("wfm") else None
    if scaled is None:
        add_waveform(signals, notes, name, volts, timing)
    else:
        codes, step, code_at_zero = scaled
        scale = {"volts_per_code": step, "code_at_zero": code_at_zero}
        add_waveform(signals, notes, name, codes, timing, scale)


def _interval_s(channel: Any) -> float:
    """Return what the file says, where the time axis agrees with it but for its last sample."""
    stated = short_decimal(float(channel.seconds_per_point))
    count = len(channel.times)
    if count < 2:
        return stated
    seen = (float(channel.times[-1]) - float(channel.times[0])) / (count - 1)
    return stated if abs(seen - stated) <= 1.5 * stated / (count - 1) else seen


def _codes(
    raw: Any, volts: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.uint8], float, float] | None:
    """Return codes, volts a code and the code of 0 V, None where volts do not follow from codes."""
    codes = np.asarray(raw)
    if codes.dtype != np.uint8 or codes.shape != volts.shape:
        return None
    least, most = int(codes.argmin()), int(codes.argmax())
    distance = int(codes[most]) - int(codes[least])
    step = float(volts[most] - volts[least]) / distance if distance else 0.0
    if not 0 < abs(step) < 1e30:
        return None
    if step < 0:  # the greater the code, the lower the voltage
        codes, step = ~codes, -step
    at_zero = float(codes[least]) - float(volts[least]) / step
    if float(np.abs((codes - at_zero) * step - volts).max()) > step / 4:
        return None
    return codes, step, at_zero


def _is_siglent(head: bytes) -> bool:
    """Whether this is a header of version 2 to 6; older ones cannot be recognised."""
    if len(head) < 64:
        return False
    version, *words = struct.unpack_from("<6I", head)
    flags = {2: words[:4], 3: words[:4], 4: words[1:5]}.get(version)
    if flags is not None:
        return set(flags) <= {0, 1} and (version == 4) <= (0x280 <= words[0] < 1 << 20)
    if version == 6:
        module = head[8:40].split(b"\0")[0]
        return words[0] & 0xFFFF >= 108 and len(module) > 2 and module.isascii()
    if version == 5 and len(head) > 0x240:
        on = [struct.unpack_from("<I", head, at)[0] for at in (0x76, 0xF0, 0x194, 0x238)]
        return set(on) <= {0, 1} and any(on)
    return False


_RECORD: Final = re.compile(rb"BYT_N", re.I)
_CURVE: Final = re.compile(rb":?CURVE?[ \t\r\n]*(?=[#\d+-])", re.I)
_OTHER_CODES: Final = re.compile(
    rb"[;:\s](?:BN_F(?:MT)? +(?!RI)\w+|BYT_NR? +(?![12]\b)\w+"
    rb"|ENC(?:DG)? +ASC\w*|PT_F(?:MT)? +ENV\w*)"
)


def _is_isf(head: bytes) -> bool:
    curve = _CURVE.search(head)
    preamble = head[: curve.start()].upper() if curve else b""
    return all(word in preamble for word in (b"BYT_N", b"YMU", b"XIN"))


def _isf_model(head: bytes) -> str:
    """Return "ISF"; CaptureError for codes that RigolWFM would take for signed samples."""
    other = _OTHER_CODES.search(b";" + head.upper().partition(b"CURV")[0])
    if other:
        raise CaptureError(
            f"It is saved as {text(other[0][1:])}, and signed binary samples (RI) are read. Save "
            "it with normal sampling, or as CSV."
        )
    return "ISF"


def _is_yokogawa(head: bytes) -> bool:
    words = (b"NR_PT:", b"PT_O:", b"XIN:", b"YMU:", b"YOF:", b"BYT:")
    return head.startswith(b"$PublicInfo") or all(word in head[:4096] for word in words)


def _yokogawa_model(head: bytes) -> str:
    """Return "auto"; CaptureError for a history, of which RigolWFM would read the first block."""
    blocks = re.search(rb"BlockNumber\s+(\d+)", head)
    if blocks and int(blocks[1]) > 1:
        raise CaptureError(
            f"It holds {int(blocks[1])} blocks of a history, and one is read. Save each of them in "
            "a file of its own."
        )
    return "auto"


def _rigol_model(head: bytes) -> str:
    return _RIGOL[head[:4]]


def _is_rohde_schwarz(head: bytes) -> bool:
    return head.startswith(b"<?xml") and b"<Database" in head and b'SaveItemType="Data"' in head


def _format(
    name: str,
    tested: str,
    recognises: Callable[[bytes], bool],
    model_of: Callable[[bytes], str],
) -> Format:
    return Format(name, tested, recognises, _opener(name, model_of), NEEDS)


FORMATS: Final = (
    _format("Rigol WFM", "DS1052E", lambda h: h[:4] in _RIGOL, _rigol_model),
    _format(
        "Rigol binary, older",
        "",
        lambda h: h.startswith(b"RG01") and h[12:16] == b"\x80\0\0\0",
        lambda h: "auto",
    ),
    _format("Siglent binary", "SDS814X HD (version 4)", _is_siglent, lambda h: "Siglent"),
    _format(
        "LeCroy TRC",
        "WaveRunner 64Xi-A, 7200",
        lambda h: b"WAVEDESC" in h[:64],
        lambda h: "LeCroy",
    ),
    _format("Rohde & Schwarz binary", "RTP", _is_rohde_schwarz, lambda h: "auto"),
    _format(
        "Rigol DHO WFM",
        "",
        lambda h: h.startswith(b"\2\0\0\0") and not _is_siglent(h),
        lambda h: "DHO",
    ),
    _format("Yokogawa waveform", "", _is_yokogawa, _yokogawa_model),
    _format("Tektronix LLWFM", "", lambda h: b"LLWFM" in h[:8], lambda h: "Tek"),
    _format("Tektronix ISF", "an oscilloscope (model not noted)", _is_isf, _isf_model),
)
