"""Pins through the registers of the pin controller itself: the fastest way from Python.

Sources: BCM2835 ARM Peripherals, chapter 6 (GPFSEL, GPSET, GPCLR; the BCM2836, BCM2837 and
BCM2711 have the same registers at the same places); raspberrypi/utils pinctrl/gpiochip_rp1.c and
raspberrypi/linux drivers/pinctrl/pinctrl-rp1.c (RP1).

Every access is one 32-bit load or store, as the hardware demands. They go through a memoryview of
unsigned int: `mmap.write` and struct may split a word into octets, and the value of a ctypes
integer (as CPython 3.11 is compiled) is read before each write, which on an RP1 costs a
round trip across PCI Express.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from mqtick.pins.base import LatencyClass, PinError, PinSettings
from mqtick.pins.board import COMPATIBLE, Board, Controller, recognise

MAX_HEADER_LINE: Final = 27
"""Higher lines are not on the header: they drive the SD card, the network, the power."""

# Offsets in octets and fields in bits.
_GPFSEL0, _GPSET0, _GPCLR0 = 0x00, 0x1C, 0x28
_FSEL_INPUT, _FSEL_OUTPUT, _FSEL_MASK = 0, 1, 7

_IO_BANK0, _SYS_RIO0, _PADS_BANK0 = 0x00000, 0x10000, 0x20000
_RIO_OUT, _RIO_OE = 0x0, 0x4
_ALIAS_SET, _ALIAS_CLR = 0x2000, 0x3000
_FUNCSEL_MASK, _FUNCSEL_SYS_RIO, _FUNCSEL_NONE = 0x1F, 5, 0x1F
_OVERRIDES = 0x3 << 12 | 0x3 << 14  # OUTOVER and OEOVER; 0: the selected function decides
_PAD_OUTPUT_DISABLE, _PAD_INPUT_ENABLE = 1 << 7, 1 << 6

_DEVICE: Final = {Controller.BCM2835: "/dev/gpiomem", Controller.RP1: "/dev/gpiomem0"}
_OCTETS: Final = {Controller.BCM2835: 0x1000, Controller.RP1: 0x30000}


class RegisterLine:
    """One line, set high by a store to one register and low by a store to another."""

    latency_class = LatencyClass.REGISTER

    def __init__(
        self, memory: mmap.mmap, line: int, controller: Controller, inactive_level: bool
    ) -> None:
        """Make the line an output at its inactive level; raises PinError if it is taken."""
        self.name = f"gpiomem GPIO {line} ({controller})"
        self._memory = memory
        self._octets = memoryview(memory)
        self._words = self._octets.cast("I")
        self._mask = 1 << line
        if controller is Controller.RP1:
            self._high = (_SYS_RIO0 + _RIO_OUT + _ALIAS_SET) // 4
            self._low = (_SYS_RIO0 + _RIO_OUT + _ALIAS_CLR) // 4
            make_output = self._make_rp1_output
        else:
            self._high, self._low = _GPSET0 // 4, _GPCLR0 // 4
            make_output = self._make_bcm2835_output
        try:
            make_output(line, inactive_level)
        except PinError:
            self.close()
            raise

    def set(self, level: bool) -> None:
        """Set the line high or low: one store, to a register in which zeros change nothing."""
        self._words[self._high if level else self._low] = self._mask

    def close(self) -> None:
        """Release the registers; the line stays an output at the level it has."""
        self._words.release()
        self._octets.release()
        self._memory.close()

    def _make_bcm2835_output(self, line: int, level: bool) -> None:
        # Ten lines share a register and there is no atomic way to change one of them, so another
        # program's change to a neighbour's function at the same instant can get lost.
        register, shift = _GPFSEL0 // 4 + line // 10, line % 10 * 3
        function = self._words[register] >> shift & _FSEL_MASK
        if function not in {_FSEL_INPUT, _FSEL_OUTPUT}:
            raise _taken(line, f"function select {function:03b}")
        self.set(level)  # the level first, so that the pin does not jump when it is switched
        others = self._words[register] & ~(_FSEL_MASK << shift)
        self._words[register] = others | _FSEL_OUTPUT << shift

    def _make_rp1_output(self, line: int, level: bool) -> None:
        control = (_IO_BANK0 + 8 * line + 4) // 4
        pad = (_PADS_BANK0 + 4 + 4 * line) // 4
        function = self._words[control] & _FUNCSEL_MASK
        if function not in {_FUNCSEL_SYS_RIO, _FUNCSEL_NONE}:
            raise _taken(line, f"function select {function}")
        self.set(level)  # the level first, so that the pin does not jump when it is switched
        self._words[(_SYS_RIO0 + _RIO_OE + _ALIAS_SET) // 4] = self._mask
        # pinctrl's gpiolib leaves the overrides as they are; the kernel clears them, and has to:
        # a line that it left as "none" has its output switched off by OEOVER.
        others = self._words[control] & ~(_FUNCSEL_MASK | _OVERRIDES)
        self._words[control] = others | _FUNCSEL_SYS_RIO
        self._words[pad] = self._words[pad] & ~_PAD_OUTPUT_DISABLE | _PAD_INPUT_ENABLE


def open_pin(settings: PinSettings, *, compatible: Path = COMPATIBLE) -> RegisterLine:
    """Open the registers and make the line an output; raises PinError if that is not possible.

    `compatible` is the file by which the board is recognised.
    """
    line = settings.line
    if line > MAX_HEADER_LINE:
        raise PinError(
            f"line is {line}, but the header has the lines 0 to {MAX_HEADER_LINE} (those above "
            "drive the SD card, the network and the power), so no register is touched; choose one "
            "of those, or the back end gpiod."
        )
    board = recognise(compatible)
    controller = board.controller
    if controller is None:
        raise PinError(
            f"This board ({board.model}) has no pin controller that the back end gpiomem knows "
            "(Raspberry Pi 0 to 5), so no register is touched; use the back end gpiod."
        )
    memory = _map(settings.device or _DEVICE[controller], _OCTETS[controller], board)
    return RegisterLine(memory, line, controller, settings.inactive_level)


def _map(device: str, octets: int, board: Board) -> mmap.mmap:
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
    except OSError as trouble:
        if isinstance(trouble, PermissionError):
            remedy = (
                "add the user to the group gpio (`usermod -aG gpio USER`) or, in a service, set "
                f"SupplementaryGroups=gpio and DeviceAllow={device} rw"
            )
        else:
            remedy = "use the back end gpiod, or a kernel of Raspberry Pi OS, which has this file"
        raise PinError(
            f"The registers of the pins cannot be opened at {device} on this board "
            f"({board.model}): {trouble.strerror}; {remedy}."
        ) from trouble
    try:
        return mmap.mmap(descriptor, octets)
    except (OSError, ValueError) as trouble:
        raise PinError(
            f"{device} cannot be mapped over {octets} octets ({trouble}), so it is not the pin "
            f"controller of this board ({board.model}); leave `device` empty to use the right one."
        ) from trouble
    finally:
        os.close(descriptor)


def _taken(line: int, function: str) -> PinError:
    return PinError(
        f"GPIO {line} is neither input nor output but belongs to a peripheral ({function}), so it "
        "is left alone; choose another line, remove the overlay that claims it from config.txt, "
        f"or, if nothing uses it, free it with `pinctrl set {line} ip`."
    )
