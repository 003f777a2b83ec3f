"""Register access, checked word by word on an ordinary file in place of the pin controller."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.pins import LatencyClass, Output, PinError, PinSettings, gpiomem
from mqtick.pins.board import recognise
from mqtick.pins.gpiomem import RegisterLine, open_pin

PI_4 = b"raspberrypi,4-model-b\0brcm,bcm2711\0"
PI_5 = b"raspberrypi,5-model-b\0brcm,bcm2712\0"
BCM_OCTETS, RP1_OCTETS = 0x1000, 0x30000

lines = st.integers(0, 27)
levels = st.booleans()
seeds = st.integers(0, 2**32)


class Registers:
    """A file that stands for the registers, and one that stands for the device tree."""

    def __init__(self, folder: Path, compatible: bytes, octets: int, seed: int | None = None):
        self.compatible = folder / "compatible"
        self.compatible.write_bytes(compatible)
        self.device = folder / "gpiomem"
        content = bytes(octets) if seed is None else random.Random(seed).randbytes(octets)
        self.device.write_bytes(content)
        self.before = self.words()

    def words(self) -> list[int]:
        data = self.device.read_bytes()
        return list(struct.unpack(f"={len(data) // 4}I", data))

    def put(self, offset: int, value: int) -> None:
        with self.device.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("=I", value))
        self.before = self.words()

    def word(self, offset: int) -> int:
        return self.words()[offset // 4]

    def changes(self) -> dict[int, int]:
        """Offsets whose words differ from before, and what they are now; begins again."""
        after = self.words()
        found = {
            4 * place: new
            for place, (old, new) in enumerate(zip(self.before, after, strict=True))
            if old != new
        }
        self.before = after
        return found

    def open(self, line: int, active_low: bool = False) -> RegisterLine:
        wish = PinSettings(
            backend="gpiomem", line=line, device=str(self.device), active_low=active_low
        )
        return open_pin(wish, compatible=self.compatible)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property test."""
    return tmp_path_factory.mktemp("registers")


def test_bcm2835_writes_these_words(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_4, BCM_OCTETS)
    line = registers.open(17)
    # BCM2835 ARM Peripherals, 6.1: GPCLR0 at 0x28, bit 17; GPFSEL1 at 0x04, bits 23-21 = 001.
    assert registers.changes() == {0x28: 1 << 17, 0x04: 0b001 << 21}
    line.set(True)
    assert registers.changes() == {0x1C: 1 << 17}
    registers.put(0x28, 0)
    line.set(False)
    assert registers.changes() == {0x28: 1 << 17}
    line.close()


def test_rp1_writes_these_words(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_5, RP1_OCTETS)
    none, pad_reset = 0x1F, 0x96
    registers.put(0x8C, none)
    registers.put(0x20048, pad_reset)
    line = registers.open(17)
    assert registers.changes() == {
        0x13000: 1 << 17,  # SYS_RIO0 OUT, alias CLR: low first
        0x12004: 1 << 17,  # SYS_RIO0 OE, alias SET
        0x0008C: 5,  # IO_BANK0 GPIO17_CTRL: function 5 is SYS_RIO
        0x20048: 0x56,  # PADS_BANK0 GPIO17: output disable (bit 7) off, input enable (bit 6) on
    }
    line.set(True)
    assert registers.changes() == {0x12000: 1 << 17}
    registers.put(0x13000, 0)
    line.set(False)
    assert registers.changes() == {0x13000: 1 << 17}
    line.close()


@given(line=lines, active_low=levels, seed=seeds, was_output=levels)
def test_bcm2835_touches_no_other_line(
    folder: Path, line: int, active_low: bool, seed: int, was_output: bool
) -> None:
    registers = Registers(folder, PI_4, BCM_OCTETS, seed)
    select, shift = 4 * (line // 10), 3 * (line % 10)
    others = registers.word(select) & ~(7 << shift)
    registers.put(select, others | was_output << shift)
    opened = registers.open(line, active_low)
    assert registers.word(select) == others | 1 << shift
    rest = 0x1C if active_low else 0x28
    assert registers.word(rest) == 1 << line
    assert set(registers.changes()) <= {select, rest}
    for level in (True, False):
        opened.set(level)
        assert registers.word(0x1C if level else 0x28) == 1 << line
    assert set(registers.changes()) <= {0x1C, 0x28}
    opened.close()
    assert registers.changes() == {}


@pytest.mark.slow
@settings(max_examples=30)
@given(line=lines, active_low=levels, seed=seeds, function=st.sampled_from([5, 0x1F]))
def test_rp1_touches_no_other_line(
    folder: Path, line: int, active_low: bool, seed: int, function: int
) -> None:
    registers = Registers(folder, PI_5, RP1_OCTETS, seed)
    control, pad = 8 * line + 4, 0x20004 + 4 * line
    registers.put(control, registers.word(control) & ~0x1F | function)
    control_before, pad_before = registers.word(control), registers.word(pad)
    opened = registers.open(line, active_low)
    assert registers.word(control) == control_before & ~0xF01F | 5
    assert registers.word(pad) == pad_before & ~0x80 | 0x40
    rest = 0x12000 if active_low else 0x13000
    assert registers.word(rest) == registers.word(0x12004) == 1 << line
    assert set(registers.changes()) <= {control, pad, rest, 0x12004}
    for level in (True, False):
        opened.set(level)
        assert registers.word(0x12000 if level else 0x13000) == 1 << line
    assert set(registers.changes()) <= {0x12000, 0x13000}
    opened.close()


class SpiedWords:
    """Stands for the view of the registers, and notes every store in order."""

    def __init__(self, _memory: object) -> None:
        self.stores: list[tuple[int, int]] = []
        self.content: dict[int, int] = {}

    def cast(self, kind: str) -> SpiedWords:
        assert kind == "I"
        return self

    def __getitem__(self, place: int) -> int:
        return self.content.get(place, 0x1F if place < 0x1000 // 4 and self.rp1 else 0)

    def __setitem__(self, place: int, value: int) -> None:
        self.stores.append((4 * place, value))
        self.content[place] = value

    rp1 = False

    def release(self) -> None:
        pass


@pytest.mark.parametrize(
    ("compatible", "octets", "expected"),
    [
        (PI_4, BCM_OCTETS, [0x1C, 0x00]),
        (PI_5, RP1_OCTETS, [0x12000, 0x12004, 0x24, 0x20014]),
    ],
)
def test_the_level_is_set_before_the_line_drives_so_that_it_does_not_jump(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compatible: bytes,
    octets: int,
    expected: list[int],
) -> None:
    registers = Registers(tmp_path, compatible, octets)
    monkeypatch.setattr(SpiedWords, "rp1", compatible is PI_5)
    monkeypatch.setattr(gpiomem, "memoryview", SpiedWords, raising=False)
    opened: Any = registers.open(4, active_low=True)
    assert [offset for offset, _ in opened._words.stores] == expected


def test_an_output_toggles_the_registers_and_closes_inactive(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_4, BCM_OCTETS)
    wish = PinSettings(backend="gpiomem", line=17, device=str(registers.device))
    output = Output(open_pin(wish, compatible=registers.compatible), wish)
    assert output.latency_class is LatencyClass.REGISTER
    assert output.name == "gpiomem GPIO 17 (BCM2835)"
    registers.changes()
    assert output.fire().made
    assert registers.changes() == {0x1C: 1 << 17}
    registers.put(0x28, 0)
    output.close()
    assert registers.changes() == {0x28: 1 << 17}
    assert output.errors == 0
    assert not output.fire().made


@pytest.mark.parametrize(
    ("compatible", "octets", "offset", "word", "said"),
    [
        *((PI_4, BCM_OCTETS, 0x00, each << 6, f"{each:03b}") for each in (2, 3, 4, 5, 6, 7)),
        *((PI_5, RP1_OCTETS, 8 * 2 + 4, each, f"{each}") for each in (0, 3, 4, 6, 7, 8, 30)),
    ],
)
def test_the_line_of_a_peripheral_is_left_alone(
    tmp_path: Path, compatible: bytes, octets: int, offset: int, word: int, said: str
) -> None:
    registers = Registers(tmp_path, compatible, octets)
    registers.put(offset, word)
    with pytest.raises(PinError, match=f"GPIO 2 .* belongs to a .*function select {said}"):
        registers.open(2)
    assert registers.changes() == {}


@pytest.mark.parametrize("line", [28, 53, 1023])
def test_lines_that_are_not_on_the_header_are_refused(tmp_path: Path, line: int) -> None:
    registers = Registers(tmp_path, PI_4, BCM_OCTETS)
    with pytest.raises(PinError, match=f"line is {line}, but the header has the lines 0 to 27"):
        registers.open(line)
    assert registers.changes() == {}


@pytest.mark.parametrize("compatible", [b"pine64,rockpro64\0rockchip,rk3399\0", b"", b"\xff\0"])
def test_an_unknown_board_is_refused_with_its_name(tmp_path: Path, compatible: bytes) -> None:
    registers = Registers(tmp_path, compatible, BCM_OCTETS)
    with pytest.raises(PinError, match=r"This board \(.+\) has no pin controller .* gpiod"):
        registers.open(17)
    assert registers.changes() == {}


def test_a_missing_register_file_is_explained(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_4, BCM_OCTETS)
    registers.device.unlink()
    with pytest.raises(PinError, match=r"raspberrypi,4-model-b\): No such file .* gpiod"):
        registers.open(17)


def test_a_file_that_is_no_pin_controller_is_explained(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_5, BCM_OCTETS)
    with pytest.raises(PinError, match="cannot be mapped over 196608 octets"):
        registers.open(17)


@contextmanager
def nobody() -> Iterator[None]:
    """Without the right to open what root may (these tests may run as root)."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_register_file_without_permission_names_the_group(tmp_path: Path) -> None:
    registers = Registers(tmp_path, PI_4, BCM_OCTETS)
    registers.device.chmod(0)
    memory = registers.device
    board = recognise(registers.compatible)
    with nobody(), pytest.raises(PinError, match=r"Permission denied; .*usermod -aG gpio"):
        gpiomem._map(str(memory), BCM_OCTETS, board)
