"""One acquisition of a logic analyser: a sigrok-cli process, and its output.

With the driver's own trigger, sigrok-cli writes a session file and ends. Without it, sigrok-cli
sends samples until it is stopped, and the edge is searched for here.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, ClassVar, Final

import numpy as np
import numpy.typing as npt

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.recording.sigrok import SigrokFileError, read_sigrok

Bits = npt.NDArray[np.uint8]

_PIECE: Final = 1 << 18
_TERMINATE_S: Final = 0.5
_POLL_S: Final = 0.005
_COMPLAINTS: Final = 8


def first_match(levels: Bits, slope: str, begin: int = 1) -> int | None:
    """Return the first sample from `begin` (at least 1) on that has an edge of this slope."""
    before, now = levels[begin - 1 : -1], levels[begin:]
    if slope == "either":
        hits = np.flatnonzero(before != now)
    else:
        hits = np.flatnonzero(now > before if slope == "rising" else now < before)
    return begin + int(hits[0]) if hits.size else None


def _levels(octets: Bits, unit: int, bit: int) -> Bits:
    """Take one channel out of samples of `unit` octets."""
    return (octets[bit // 8 :: unit] >> np.uint8(bit % 8)) & np.uint8(1)


class Acquisition(ABC):
    """A running sigrok-cli; the caller must call `end`."""

    armed_when_told: ClassVar[bool] = False
    """Whether it waits for the trigger as soon as the device has the command to sample."""

    def __init__(self, command: Sequence[str]) -> None:
        self.armed = threading.Event()
        self._complaints: deque[str] = deque(maxlen=_COMPLAINTS)
        self._unitsize: int | None = None
        try:
            # Standard input stays open: sigrok-cli ends when it reads from there.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise InstrumentError(f"{command[0]} cannot be run ({error.strerror}).") from error
        self._threads = [
            threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True),
            threading.Thread(target=self._collect, args=(self.process.stdout,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, stream: BinaryIO) -> None:
        for octets in stream:
            line = octets.decode("utf-8", "replace").strip()
            size = re.search(r"SR_DF_LOGIC \(\d+ bytes, unitsize = (\d+)\)", line)
            if size:
                self._unitsize = int(size.group(1))
            elif "Received SR_DF_HEADER" in line:
                if self.armed_when_told:
                    self.armed.set()
            elif line and not re.search(r"Received SR_DF|session: |Press any key", line):
                self._complaints.append(line.rstrip("."))

    def _collect(self, stream: BinaryIO) -> None:
        while stream.read(_PIECE):
            pass

    @property
    def complaint(self) -> str:
        """The error output of sigrok-cli, or a note that there was none."""
        return "; ".join(self._complaints) or "it said nothing"

    @abstractmethod
    def complete(self) -> bool:
        """Whether the record is complete; InstrumentError if it can no longer be."""

    @abstractmethod
    def read(self, channels: dict[int, str]) -> tuple[dict[int, Bits], int]:
        """Return the levels of channels (number -> name), and the sample of the trigger."""

    def end(self) -> None:
        """End the process, whatever it is doing, and discard the record."""
        self.stop()

    def stop(self) -> None:
        """End the process; a record that is complete stays."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_TERMINATE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(_TERMINATE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class FileAcquisition(Acquisition):
    """The driver waits for the trigger; the record arrives as a session file.

    The file does not state where the trigger is. Drivers with a software trigger (fx2lafw, the
    demo) take the very first edge, with fewer samples before it if it came early. Those with a
    hardware trigger put it at the requested sample.
    """

    armed_when_told = True

    def __init__(
        self, command: Sequence[str], trigger: tuple[str, str], before: int, samples: int
    ) -> None:
        self._trigger, self._slope = trigger
        self._before, self._samples = before, samples
        self._folder = TemporaryDirectory(prefix="mqtick-sigrok-")
        self._file = Path(self._folder.name) / "capture.sr"
        try:
            super().__init__([*command, "--output-file", str(self._file)])
        except InstrumentError:
            self._folder.cleanup()
            raise

    def complete(self) -> bool:
        """Whether sigrok-cli has written the file and ended."""
        code = self.process.poll()
        if code is None:
            return False
        self._threads[0].join(_TERMINATE_S)
        if code or not self._file.exists():
            raise InstrumentError(
                f"sigrok-cli ended with {code} and no record ({self.complaint}); was the device "
                "unplugged, or did it end without a trigger?"
            )
        return True

    def read(self, channels: dict[int, str]) -> tuple[dict[int, Bits], int]:
        """Read the file."""
        try:
            found = read_sigrok(self._file, {*channels.values(), self._trigger})
        except SigrokFileError as error:
            raise InstrumentError(f"sigrok-cli's record is not valid: {error}") from error
        levels = {number: found[name].codes.astype(np.uint8) for number, name in channels.items()}
        trigger = found[self._trigger].codes.astype(np.uint8)
        if trigger.size < self._samples:
            raise InstrumentError(
                f"The device sent {trigger.size} of {self._samples} samples ({self.complaint}): "
                "it was unplugged, or its link is too slow for this sample rate; take fewer points."
            )
        begin = max(1, self._before - 2)
        near = first_match(trigger[: self._before + 3], self._slope, begin)
        at = near if near is not None else first_match(trigger, self._slope)
        if at is None:
            raise InstrumentError(
                f"The record has no {self._slope} edge on its trigger {self._trigger}; the driver "
                "triggered on something else. Try trigger=software in the resource."
            )
        return levels, at

    def end(self) -> None:
        """End the process, and remove the file."""
        super().end()
        self._folder.cleanup()


class StreamAcquisition(Acquisition):
    """The device samples all the time; the trigger is searched for here."""

    def __init__(
        self, command: Sequence[str], bit: int, slope: str, before: int, samples: int, octets: int
    ) -> None:
        self._bit, self._slope, self._before, self._samples = bit, slope, before, samples
        self._octets = octets
        self._record: Bits | None = None
        self._record_unit = octets
        super().__init__([*command, "--continuous", "--output-format", "binary"])

    def _collect(self, stream: BinaryIO) -> None:
        pieces: deque[bytes] = deque()
        first = total = 0  # octets before the first kept piece; all octets so far
        carry, place = b"", 0  # octets from the last whole sample on; octets before it
        found: int | None = None
        unit = 0
        while piece := stream.read1(_PIECE):  # type: ignore[attr-defined]
            pieces.append(piece)
            total += len(piece)
            if found is None:
                unit = unit or self._unit()
                window = carry + piece
                whole = len(window) // unit
                levels = _levels(np.frombuffer(window, np.uint8, whole * unit), unit, self._bit)
                begin = max(1, self._before - place // unit)
                if whole > begin:
                    self.armed.set()
                    hit = first_match(levels, self._slope, begin)
                    found = None if hit is None else place // unit + hit
                past = max(0, whole - 1) * unit
                carry, place = window[past:], place + past
                while found is None and first + len(pieces[0]) <= place - self._before * unit:
                    first += len(pieces.popleft())
            if found is not None:
                begin = (found - self._before) * unit
                end = begin + self._samples * unit
                if total >= end:
                    record = b"".join(pieces)[begin - first : end - first]
                    self._record, self._record_unit = np.frombuffer(record, np.uint8), unit
                    return

    def _unit(self) -> int:
        """Octets of a sample: sigrok-cli states it on standard error before the first sample."""
        end_s = time.monotonic() + _TERMINATE_S
        while self._unitsize is None and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        return self._unitsize or self._octets

    def complete(self) -> bool:
        """Whether the record is full."""
        if self._record is not None:
            return True
        if self.process.poll() is not None:
            for thread in self._threads:
                thread.join(_TERMINATE_S)
            if self._record is None:
                raise InstrumentError(
                    f"sigrok-cli ended with {self.process.returncode} before the record was "
                    f"complete ({self.complaint}); was the device unplugged?"
                )
            return True
        return False

    def read(self, channels: dict[int, str]) -> tuple[dict[int, Bits], int]:
        """Take the channels out of the record."""
        record = self._record
        if record is None:
            raise InstrumentError("There is no record to read: the trigger did not come.")
        unit = self._record_unit
        missing = [name for number, name in channels.items() if number > 8 * unit]
        if missing:
            raise InstrumentError(
                f"The device sent samples of {unit} octets, and {', '.join(missing)} is not in "
                "them."
            )
        return {number: _levels(record, unit, number - 1) for number in channels}, self._before
