"""Which board this is, from what its device tree says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.pins.board import Controller, recognise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property test."""
    return tmp_path_factory.mktemp("board")


@pytest.mark.parametrize(
    ("names", "controller"),
    [
        ("raspberrypi,model-b-rev2 brcm,bcm2835", Controller.BCM2835),
        ("raspberrypi,model-zero-w brcm,bcm2835", Controller.BCM2835),
        ("raspberrypi,2-model-b brcm,bcm2836", Controller.BCM2835),
        ("raspberrypi,3-model-b-plus brcm,bcm2837", Controller.BCM2835),
        ("raspberrypi,model-zero-2-w brcm,bcm2837", Controller.BCM2835),
        ("raspberrypi,4-model-b brcm,bcm2711", Controller.BCM2835),
        ("raspberrypi,400 brcm,bcm2711", Controller.BCM2835),
        ("raspberrypi,5-model-b brcm,bcm2712", Controller.RP1),
        ("raspberrypi,5-compute-module brcm,bcm2712", Controller.RP1),
        ("linux,dummy-virt", None),
    ],
)
def test_boards_are_recognised_from_the_device_tree(
    tmp_path: Path, names: str, controller: Controller | None
) -> None:
    path = tmp_path / "compatible"
    path.write_bytes(names.replace(" ", "\0").encode() + b"\0")
    board = recognise(path)
    assert board.controller is controller
    assert board.model == names.split(maxsplit=1)[0]


def test_a_machine_without_a_device_tree_has_no_controller(tmp_path: Path) -> None:
    board = recognise(tmp_path / "none")
    assert (board.controller, board.model) == (None, "unknown")


@given(st.binary(max_size=200))
def test_any_device_tree_is_survived(folder: Path, data: bytes) -> None:
    path = folder / "hostile"
    path.write_bytes(data)
    board = recognise(path)
    assert all(name and "\0" not in name for name in board.compatible)
