"""Which Raspberry Pi this is, from the device tree's list of compatible boards.

Source: Devicetree Specification 0.4, 2.3.1 (`compatible`: strings, each ended by a zero octet,
the most specific first); the names are those of the kernel's arch/arm*/boot/dts/broadcom.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

COMPATIBLE: Final = Path("/proc/device-tree/compatible")


class Controller(StrEnum):
    """The pin controllers that the header of a Raspberry Pi can be connected to."""

    BCM2835 = "BCM2835"
    """And its relatives up to the BCM2711: Raspberry Pi 1 to 4, Zero, Zero 2."""
    RP1 = "RP1"
    """Raspberry Pi 5, 500, Compute Module 5: behind PCI Express."""


_CONTROLLER_OF: Final = {
    "brcm,bcm2835": Controller.BCM2835,
    "brcm,bcm2836": Controller.BCM2835,
    "brcm,bcm2837": Controller.BCM2835,
    "brcm,bcm2711": Controller.BCM2835,
    "brcm,bcm2712": Controller.RP1,
}


@dataclass(frozen=True, slots=True)
class Board:
    """A board as it names itself, and its pin controller if that is one of those known here."""

    compatible: tuple[str, ...]
    controller: Controller | None

    @property
    def model(self) -> str:
        """The most specific name of the board, or "unknown"."""
        return self.compatible[0] if self.compatible else "unknown"


def recognise(path: Path = COMPATIBLE) -> Board:
    """Recognise the board; one without a device tree (a PC) has no names and no controller."""
    try:
        data = path.read_bytes()[:4096]
    except OSError:
        data = b""
    names = tuple(name for name in data.decode("ascii", "replace").split("\0") if name)
    controllers = (_CONTROLLER_OF[name] for name in names if name in _CONTROLLER_OF)
    return Board(names, next(controllers, None))
