"""Reference waveforms of Tektronix (.wfm, versions 1 to 3), one channel a file, by RigolWFM.

Taken from it is what it finds in the file, and not what it makes of that: it refuses FastFrame
files of Tektronix' own library, and codes are volts there. Volts are scale * code + offset of
explicit dimension 1, instants offset + scale * sample of implicit dimension 1, counted from the
trigger (Tektronix 077-0220). The trigger's place within a sample, which each FastFrame has of its
own, is not taken in: it is the same for all channels of a shot and drops out of their differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.rigol_wfm import NEEDS, by_rigolwfm
from mqtick.recording.bits import transitions_of_bits
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import add_waveform, channel_of, interval_fs, start_fs, text
from mqtick.recording.waveform import Waveform

_VERSIONS: Final = (b":WFM#001", b":WFM#002", b":WFM#003")
_KINDS: Final = {0: "i2", 1: "i4", 2: "u4", 4: "f4", 5: "f8", 6: "u1", 7: "i1"}
_VECTOR, _DIGITAL = 2, 6
_FAST_FRAME: Final = 1
_LINES: Final = tuple(f"d{bit}" for bit in range(8))


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    _parsed(path)
    # Read again when it is wanted: of many files only one is in memory.
    return CaptureFile(
        path, "Tektronix WFM", "Tektronix", lambda: _captures(path, *_parsed(path), notes), notes
    )


def _parsed(path: Path) -> tuple[bytes, Any]:
    with by_rigolwfm(path, "Tektronix WFM"):
        octets = path.read_bytes()
        version, order = "001" if octets[9:10] == b"1" else "002", "Le" if octets[0] < 128 else "Be"
        module = import_module(f"RigolWFM.tektronix_wfm_{version}_{order.lower()}_wfm")
        found = getattr(module, f"TektronixWfm{version}{order}Wfm").from_bytes(octets)
        getattr(found, "frame_update_specs", [])  # read only when it is asked for
        return octets, found


def _captures(path: Path, octets: bytes, found: Any, notes: list[str]) -> Iterator[Capture]:
    info, header = found.static_file_info, found.wfm_header
    curve = header.curve
    begin, end = curve.data_start_offset, curve.postcharge_start_offset
    stride, first = curve.end_of_curve_buffer_offset, info.byte_offset_to_curve_buffer
    if not 0 <= begin <= end <= stride:
        raise CaptureError(f"{path} says that its samples are at octets {begin} to {end}.")
    kind = _kind(path, info, header, ">" if octets[0] >= 128 else "<")
    name = text(info.waveform_label) or channel_of(path)
    updates = (header.update_spec, *getattr(found, "frame_update_specs", []))
    frames = len(updates)
    if frames <= info.n_fast_frames_minus_1:
        notes.append("Of version 1 only the first frame is read.")
    words = octets[first + frames * stride :].partition(b"tekmeta!")[2]
    digital = header.data_type == _DIGITAL or all(
        b"\2\0\0\0" + line.encode() in words for line in _LINES
    )
    summary: int = getattr(header, "summary_frame_type", 0)
    if frames > 1 and summary:
        notes.append("The last frame is a summary of the others, and was left out.")
        frames -= 1
    complete = 0
    for index in range(frames):
        at = first + index * stride
        samples = octets[at + begin : at + end]
        if len(samples) < end - begin:
            notes.append(f"Frames from {index + 1} on were left out: the file ends before.")
            break
        codes = np.frombuffer(samples, kind, len(samples) // kind.itemsize)
        signals: dict[str, Signal] = {}
        _add(path, name, header, codes, digital, signals, notes)
        if signals:
            complete += 1
            yield Capture(signals, started_ns=_started_ns(updates[index]))
    if not complete:
        raise CaptureError(" ".join([f"{path} has no complete frame.", *notes]))


def _kind(path: Path, info: Any, header: Any, order: str) -> np.dtype[Any]:
    if header.data_type not in (_VECTOR, _DIGITAL) or header.set_type not in (0, _FAST_FRAME):
        raise CaptureError(
            f"{path} has no waveform of volts over time (its data type is {int(header.data_type)}, "
            f"its set type {int(header.set_type)}); save it as CSV."
        )
    code, width = int(header.exp_dim1.format), info.num_bytes_per_point
    kind = "i1" if (code, width) == (0, 1) else _KINDS.get(code, "")
    if not kind or np.dtype(kind).itemsize != width:
        raise CaptureError(
            f"{path} has samples of the format {code} in {width} octets, which is not supported; "
            "save it as CSV."
        )
    return np.dtype(order + kind)


def _add(
    path: Path,
    name: str,
    header: Any,
    codes: npt.NDArray[Any],
    digital: bool,
    signals: dict[str, Signal],
    notes: list[str],
) -> None:
    base, scale, offset = header.imp_dim1, header.exp_dim1.dim_scale, header.exp_dim1.dim_offset
    if not (0 < abs(scale) < 1e30 and abs(offset) < 1e30):
        raise CaptureError(f"{path} has {scale!r} V per code at {offset!r} V: save it again.")
    timing = (
        interval_fs(base.dim_scale, path, "its time base"),
        start_fs(base.dim_offset, path, "its time base"),
    )
    if digital and codes.itemsize == 1:
        for bit, line in enumerate(_LINES):
            levels = codes.view(np.uint8) >> bit & 1
            signals[line] = transitions_of_bits(line, Waveform(levels, 1.0, 0.0, *timing))
    elif codes.dtype.kind == "f" or codes.itemsize > 2 or scale < 0:
        add_waveform(signals, notes, name, codes.astype(np.float64) * scale + offset, timing)
    else:
        scaling = {"volts_per_code": scale, "code_at_zero": -offset / scale}
        native = codes.astype(codes.dtype.newbyteorder("="))
        add_waveform(signals, notes, name, native, timing, scaling)


def _started_ns(update: Any) -> int | None:
    known = update.gmt_sec > 0 and 0 <= update.frac_sec < 1
    return int(update.gmt_sec) * 10**9 + round(update.frac_sec * 1e9) if known else None


FORMATS: Final = (
    Format(
        "Tektronix WFM",
        "tm_data_types 0.5.0 (version 3)",
        lambda head: head[:2] in (b"\x0f\x0f", b"\xf0\xf0") and head[2:10] in _VERSIONS,
        _open,
        NEEDS,
    ),
)
