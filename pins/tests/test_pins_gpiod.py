"""libgpiod: chips by label, and a sentence for all that can be wrong.

The chips are simulated; settings, values and signatures are those of the installed module.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mqtick.pins import LatencyClass, Output, PinError, PinSettings
from mqtick.pins.gpiod import open_pin

real: Any = pytest.importorskip("gpiod")


class SimulatedRequest:
    def __init__(self) -> None:
        self.values: list[dict[int, Any]] = []
        self.released = False

    def set_values(self, *args: Any, **kwargs: Any) -> None:
        inspect.signature(real.LineRequest.set_values).bind(self, *args, **kwargs)
        if self.released:
            raise real.RequestReleasedError
        self.values.append(dict(args[0]))

    def release(self) -> None:
        self.released = True


class Machine:
    """The chips of a simulated machine, and the module that shows them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.labels: dict[str, str] = {}
        self.trouble_opening: OSError | None = None
        self.trouble_requesting: OSError | None = None
        self.consumer: str | None = "led0"
        self.asked: list[dict[str, Any]] = []
        self.request = SimulatedRequest()
        module = ModuleType("gpiod")
        for name in ("LineSettings", "line", "__version__"):
            setattr(module, name, getattr(real, name))
        # Like the real ones, these follow links.
        module.is_gpiochip_device = (  # type: ignore[attr-defined]
            lambda path: os.path.realpath(path) in self.labels
        )
        module.Chip = self._chip_class()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "gpiod", module)

    def add(self, name: str, label: str) -> str:
        path = self.folder / name
        path.touch()
        self.labels[str(path)] = label
        return str(path)

    def open(self, **settings: Any) -> Any:
        return open_pin(PinSettings(**settings), devices=str(self.folder / "gpiochip*"))

    def _chip_class(self) -> Callable[[str], Any]:
        machine = self

        class SimulatedChip:
            def __init__(self, path: str) -> None:
                inspect.signature(real.Chip).bind(path)
                if machine.trouble_opening:
                    raise machine.trouble_opening
                self.path = os.path.realpath(path)
                if self.path not in machine.labels:
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory")

            def __enter__(self) -> SimulatedChip:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def get_info(self) -> Any:
                return SimpleNamespace(label=machine.labels[self.path], num_lines=54)

            def get_line_info(self, line: int) -> Any:
                return SimpleNamespace(consumer=machine.consumer)

            def request_lines(self, *args: Any, **kwargs: Any) -> SimulatedRequest:
                inspect.signature(real.Chip.request_lines).bind(self, *args, **kwargs)
                if machine.trouble_requesting:
                    raise machine.trouble_requesting
                machine.asked.append(kwargs)
                return machine.request

        return SimulatedChip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("label", ["pinctrl-rp1", "pinctrl-bcm2711", "pinctrl-bcm2835"])
def test_the_header_is_found_by_label_whatever_its_number(machine: Machine, label: str) -> None:
    machine.add("gpiochip0", "gpio-brcmstb@107d508500")
    path = machine.add("gpiochip4", label)
    line = machine.open(line=17)
    assert line.name == f"gpiod {path} ({label}) line 17"
    assert line.latency_class is LatencyClass.SYSTEM_CALL


def test_one_chip_with_two_names_is_one_chip(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    (machine.folder / "gpiochip4").symlink_to(machine.folder / "gpiochip0")
    assert "gpiochip0" in machine.open().name


@pytest.mark.parametrize("active_low", [False, True])
def test_the_line_is_requested_as_an_output_at_rest(machine: Machine, active_low: bool) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    machine.open(line=5, active_low=active_low)
    (asked,) = machine.asked
    assert asked["consumer"] == "mqtick"
    ((number, wish),) = asked["config"].items()
    assert number == 5
    assert wish.direction is real.line.Direction.OUTPUT
    assert wish.output_value is real.line.Value(active_low)
    assert wish.active_low is False  # or the level would be turned round twice


def test_edges_set_the_value_and_closing_releases_the_line(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    settings = PinSettings(line=5)
    with Output(machine.open(line=5), settings) as output:
        assert [output.fire().level for _ in range(3)] == [True, False, True]
    high, low = {5: real.line.Value.ACTIVE}, {5: real.line.Value.INACTIVE}
    assert machine.request.values == [high, low, high, low]
    assert machine.request.released
    assert output.errors == 0


def test_a_line_lost_in_operation_is_counted_not_raised(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    output = Output(machine.open(line=5), PinSettings(line=5))
    machine.request.release()
    assert not output.fire().made
    assert output.last_error == "GPIO lines have been released"


def test_a_given_label_or_path_is_taken(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    path = machine.add("gpiochip1", "ftdi-cbus")
    assert "ftdi-cbus" in machine.open(chip_label="ftdi-cbus").name
    assert "ftdi-cbus" in machine.open(chip_label=path).name


def test_two_chips_of_one_label_are_listed_and_neither_taken(machine: Machine) -> None:
    paths = [machine.add(f"gpiochip{number}", "ftdi-cbus") for number in (2, 3)]
    with pytest.raises(PinError, match=f"2 GPIO chips .* ftdi-cbus: {' and '.join(paths)}, so"):
        machine.open(chip_label="ftdi-cbus")


def test_a_missing_label_brings_the_list(machine: Machine) -> None:
    path = machine.add("gpiochip0", "gpio-mockup")
    with pytest.raises(PinError, match=rf"No GPIO chip has .*; there are: {path} \(gpio-mockup\)"):
        machine.open()
    with pytest.raises(PinError, match="has the label pinctrl-x, so no pin is opened"):
        machine.open(chip_label="pinctrl-x")


def test_a_missing_path_is_explained(machine: Machine) -> None:
    with pytest.raises(PinError, match=r"/dev/no.* cannot be used: there is no such file; .*gpiod"):
        machine.open(chip_label="/dev/nogpiochip")


def test_a_machine_without_chips_is_told_so(machine: Machine) -> None:
    with pytest.raises(PinError, match="There is no GPIO chip at"):
        machine.open()


def test_a_line_in_use_names_its_user(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    machine.trouble_requesting = OSError(errno.EBUSY, "Device or resource busy")
    with pytest.raises(PinError, match=r"Line 17 of .* is in use by 'led0'"):
        machine.open(line=17)
    machine.consumer = ""
    with pytest.raises(PinError, match="is in use by 'the kernel'"):
        machine.open(line=17)


@pytest.mark.parametrize("when", ["trouble_opening", "trouble_requesting"])
def test_missing_permission_names_the_group(machine: Machine, when: str) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    setattr(machine, when, PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(PinError, match=r"may not open it; .*usermod -aG gpio.*DeviceAllow"):
        machine.open()


def test_any_other_trouble_is_passed_on_in_a_sentence(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    machine.trouble_requesting = OSError(errno.EINVAL, "Invalid argument")
    with pytest.raises(PinError, match=r"cannot be used: .*Invalid argument"):
        machine.open()


def test_a_line_beyond_the_chip_is_refused(machine: Machine) -> None:
    machine.add("gpiochip0", "pinctrl-rp1")
    with pytest.raises(PinError, match=r"line is 54, but .* has the lines 0 to 53"):
        machine.open(line=54)


def test_libgpiod_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("gpiod")
    old.__version__ = "1.6.3"  # type: ignore[attr-defined]
    old.Chip = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpiod", old)
    with pytest.raises(PinError, match=r"gpiod has version 1\.6\.3, but mqtick needs libgpiod 2"):
        open_pin(PinSettings())


def test_a_missing_module_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpiod", None)
    with pytest.raises(PinError, match=r"gpiod cannot be loaded .*pip install"):
        open_pin(PinSettings())


def test_the_real_module_is_asked_where_no_chip_is(tmp_path: Path) -> None:
    with pytest.raises(PinError, match="There is no GPIO chip at"):
        open_pin(PinSettings(), devices=str(tmp_path / "gpiochip*"))
    with pytest.raises(PinError, match="no such file"):
        open_pin(PinSettings(chip_label=str(tmp_path / "gpiochip0")))
