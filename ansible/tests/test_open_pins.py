"""A pin that a program is to get is tried before it comes into the program's configuration."""

from __future__ import annotations

import json
import pathlib
import runpy
import sys
from pathlib import Path, PosixPath
from typing import Any

import pytest

import mqtick.pins
from mqtick.pins import PinError, PinSettings

SCRIPT = Path(__file__).parent.parent / "roles/gpio/files/open_pins.py"


class Board:
    """A host on which a client runs with a pin, and programs of mqtick hold some lines."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.held, self.opened = root, set[int](), list[int]()
        self.monkeypatch = monkeypatch
        (root / "run/mqtick-client").mkdir(parents=True)
        (root / "run/mqtick-client/status.json").write_text("{}")
        (root / "etc/mqtick").mkdir(parents=True)
        (root / "etc/mqtick/client.toml").write_text("[pin]\nbackend = 'gpiod'\nline = 17\n")
        monkeypatch.setattr(mqtick.pins, "open_line", self.open_line)

    def open_line(self, settings: PinSettings) -> Board:
        if settings.line in self.held:
            raise PinError(f"Line {settings.line} of gpiochip0 is in use by 'mqtick', so ...")
        self.opened.append(settings.line)
        return self

    def close(self) -> None:
        pass

    def ask(self, *tables: dict[str, Any]) -> str:
        """Return why the client cannot have these pins."""
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [str(SCRIPT), "mqtick-client", json.dumps(tables)])
            patch.setattr(pathlib, "Path", lambda path: PosixPath(f"{self.root}{path}"))
            try:
                runpy.run_path(str(SCRIPT))
            except SystemExit as end:
                return str(end.code)
        return ""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return Board(tmp_path, monkeypatch)


def test_a_free_pin_is_opened_and_none_is_not(board: Board) -> None:
    assert board.ask({"backend": "gpiod", "line": 22}, {"backend": "none"}) == ""
    assert board.opened == [22]


def test_the_pin_that_the_client_drives_is_not_touched(board: Board) -> None:
    assert board.ask({"backend": "gpiod", "line": 17}) == ""
    assert board.opened == []


def test_the_clients_own_pin_may_have_other_settings(board: Board) -> None:
    board.held = {17}
    assert board.ask({"backend": "gpiod", "line": 17, "mode": "pulse"}) == ""
    assert board.ask({"backend": "gpiod", "active_low": True}) == ""  # 17 is the default


def test_the_pin_of_the_time_server_on_the_same_host_is_refused(board: Board) -> None:
    board.held = {17, 18}
    assert "Line 18 of gpiochip0 is in use" in board.ask({"backend": "gpiod", "line": 18})


def test_a_client_that_does_not_run_holds_no_pin(board: Board) -> None:
    board.held = {17}
    (board.root / "run/mqtick-client/status.json").unlink()
    assert "Line 17" in board.ask({"backend": "gpiod", "line": 17})
