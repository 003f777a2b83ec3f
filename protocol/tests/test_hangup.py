"""SIGHUP: the key file is read again."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.hangup import read_keys_on_hangup

OLD, NEW = "11" * 32, "22" * 32


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = signal.getsignal(signal.SIGHUP)
    made = Loop()
    yield made
    signal.signal(signal.SIGHUP, before)
    made.close()


def hang_up(loop: Loop) -> None:
    signal.raise_signal(signal.SIGHUP)
    loop.turn(0)


def test_the_keys_in_the_file_are_used_from_then_on(loop: Loop, tmp_path: Path) -> None:
    path, used = tmp_path / "keys", list[Keyring]()
    read_keys_on_hangup(loop.call_on_signal, str(path), used.append)
    path.touch(mode=0o600)
    for text in (f"fleet {OLD}\nfleet {NEW}\n", f"fleet {NEW}\n"):
        path.write_text(text)
        hang_up(loop)
        assert used[-1] == Keyring.from_text(text)


@pytest.mark.parametrize("fault", ["missing", "damaged", "open to everybody"])
def test_a_file_that_cannot_be_used_changes_nothing_and_is_complained_of(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    path, used = tmp_path / "keys", list[Keyring]()
    if fault != "missing":
        path.touch(mode=0o600)
        path.write_text("fleet 12\n" if fault == "damaged" else f"fleet {NEW}\n")
        path.chmod(0o604 if fault == "open to everybody" else 0o600)
    read_keys_on_hangup(loop.call_on_signal, str(path), used.append)
    hang_up(loop)
    assert used == []
    assert "stay in use" in caplog.text
    assert str(path) in caplog.text
    assert NEW not in caplog.text


def test_without_a_key_file_a_hangup_does_no_harm(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    used = list[Keyring]()
    read_keys_on_hangup(loop.call_on_signal, "", used.append)
    with caplog.at_level(logging.WARNING):
        hang_up(loop)
    assert used == []
    assert "keys_file" in caplog.text
