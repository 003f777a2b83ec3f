"""Pins through the kernel's GPIO character device and libgpiod 2: the default, on any Linux.

Chips are found by label, since their numbers change: the header of a Raspberry Pi 5 was
gpiochip4 and is gpiochip0 since kernel 6.6.45 (raspberrypi/linux issue 6144).
"""

from __future__ import annotations

import errno
import importlib
import os
from glob import glob
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from mqtick.pins.base import LatencyClass, PinError, PinSettings

if TYPE_CHECKING:
    import gpiod

HEADER_LABELS: Final = ("pinctrl-rp1", "pinctrl-bcm2711", "pinctrl-bcm2835")
"""Labels of the chips that the header of a Raspberry Pi (5, 4, 0 to 3) is connected to."""
CONSUMER: Final = "mqtick"

_INSTALL: Final = (
    "install it with `pip install 'gpiod>=2.1'` or, from Debian 13 on, "
    "`apt install python3-libgpiod`"
)
_ALLOW: Final = (
    "add the user to the group gpio (`usermod -aG gpio USER`) or, in a service, set "
    "SupplementaryGroups=gpio and DeviceAllow=char-gpiochip rw"
)


class GpiodLine:
    """One requested line; the kernel keeps it for us until close()."""

    latency_class = LatencyClass.SYSTEM_CALL

    def __init__(self, request: gpiod.LineRequest, line: int, values: Any, chip: str) -> None:
        """Take over a request; `values` is libgpiod's class Value, `chip` its name in errors."""
        self.name = f"gpiod {chip} line {line}"
        self._request = request
        # Made once, so that an edge creates no dictionary.
        self._high: dict[int | str, Any] = {line: values.ACTIVE}
        self._low: dict[int | str, Any] = {line: values.INACTIVE}

    def set(self, level: bool) -> None:
        """Set the line high or low: one ioctl (GPIO_V2_LINE_SET_VALUES_IOCTL)."""
        self._request.set_values(self._high if level else self._low)

    def close(self) -> None:
        """Release the line; whether the level then stays is up to the pin controller."""
        self._request.release()


def open_pin(settings: PinSettings, *, devices: str = "/dev/gpiochip*") -> GpiodLine:
    """Request the line from its chip, at its inactive level; raises PinError if not possible.

    `devices` is the pattern of the chips' files.
    """
    module = _load()
    path, label = _find_chip(module, settings.chip_label, devices)
    chip_name = f"{path} ({label})"
    try:
        with module.Chip(path) as chip:
            return _request(module, chip, chip_name, settings)
    except OSError as trouble:
        raise _chip_error(path, trouble) from trouble


def _load() -> ModuleType:
    try:
        module = importlib.import_module("gpiod")
    except ImportError as trouble:
        raise PinError(
            f"The Python module gpiod cannot be loaded ({trouble}), so no pin is opened; "
            f"{_INSTALL}, or choose another back end."
        ) from trouble
    if not hasattr(module, "LineSettings"):
        version = getattr(module, "__version__", "1")
        raise PinError(
            f"The Python module gpiod has version {version}, but mqtick needs libgpiod 2.1 or "
            f"later, whose calls have other names, so no pin is opened; {_INSTALL}."
        )
    return module


def _find_chip(module: ModuleType, wanted: str, devices: str) -> tuple[str, str]:
    """Find path and label of the wanted chip: one of HEADER_LABELS, or a label, or a path."""
    if wanted.startswith("/"):
        return wanted, _label(module, wanted)
    found: dict[str, str] = {}
    for path in sorted(glob(devices)):
        # Raspberry Pi OS keeps /dev/gpiochip4 as a link to gpiochip0: one chip, not two.
        real = os.path.realpath(path)
        if real not in found and module.is_gpiochip_device(real):
            found[real] = _label(module, real)
    labels = (wanted,) if wanted else HEADER_LABELS
    matching = [(path, label) for path, label in found.items() if label in labels]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{path} ({label})" for path, label in found.items()) or "none"
    if matching:
        paths = " and ".join(path for path, _ in matching)
        raise PinError(
            f"{len(matching)} GPIO chips have the label {' or '.join(labels)}: {paths}, so none "
            "is used; set chip_label to the path of the right one."
        )
    if not found:
        raise PinError(
            f"There is no GPIO chip at {devices}, so no pin is opened; this machine has no pins, "
            "or the service may not see them (PrivateDevices=, DeviceAllow=)."
        )
    raise PinError(
        f"No GPIO chip has the label {' or '.join(labels)}, so no pin is opened; there are: "
        f"{listed}. Set chip_label to one of these labels or paths."
    )


def _label(module: ModuleType, path: str) -> str:
    try:
        with module.Chip(path) as chip:
            return str(chip.get_info().label)
    except OSError as trouble:
        raise _chip_error(path, trouble) from trouble


def _request(module: ModuleType, chip: Any, chip_name: str, settings: PinSettings) -> GpiodLine:
    line = settings.line
    lines = chip.get_info().num_lines
    if line >= lines:
        raise PinError(
            f"line is {line}, but {chip_name} has the lines 0 to {lines - 1}, so no pin is "
            "opened; choose one of them."
        )
    values = module.line.Value
    # Polarity is the Output's business, so the line itself is never asked to invert.
    rest = values.ACTIVE if settings.inactive_level else values.INACTIVE
    wish = module.LineSettings(direction=module.line.Direction.OUTPUT, output_value=rest)
    try:
        request = chip.request_lines(config={line: wish}, consumer=CONSUMER)
    except OSError as trouble:
        if trouble.errno != errno.EBUSY:
            raise
        holder = chip.get_line_info(line).consumer or "the kernel"
        raise PinError(
            f"Line {line} of {chip_name} is in use by {holder!r}, so it is not opened; stop that "
            "program, remove its overlay from config.txt, or choose another line."
        ) from trouble
    return GpiodLine(request, line, values, chip_name)


def _chip_error(path: str, trouble: OSError) -> PinError:
    if isinstance(trouble, PermissionError):
        reason, remedy = "this user may not open it", _ALLOW
    elif isinstance(trouble, FileNotFoundError):
        reason, remedy = "there is no such file", "`gpiodetect` lists the chips"
    else:
        reason, remedy = f"{trouble}", "`gpiodetect` lists the chips"
    return PinError(f"The GPIO chip {path} cannot be used: {reason}; {remedy}.")
