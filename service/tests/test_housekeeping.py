"""Housekeeping: optional parts are tended, and what is wrong with them is said everywhere."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from mqtick.service import Metric, read_status
from mqtick.service.program import Housekeeping, trouble_lines
from mqtick.service.settings.program import RealtimeKeys

CALM = RealtimeKeys(lock_memory=False, quiet_garbage_collector=False)


class Part:
    """Works once it was tended often enough."""

    def __init__(self, times: int) -> None:
        self.times = times

    @property
    def trouble(self) -> str:
        return "no chip" if self.times > 0 else ""

    def tend(self) -> None:
        self.times -= 1


def housekeeping(folder: Path, listen: str = "") -> Housekeeping:
    return Housekeeping(
        "mqtick-client",
        str(folder),
        listen,
        CALM,
        status=lambda: {"state": "synchronised"},
        summary=lambda values: values["state"],
        metrics=lambda _values: [Metric("a", 1, "")],
    )


def ticked(house: Housekeeping, until: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10
    while not until():
        assert time.monotonic() < deadline_s
        house.tick()
        time.sleep(0.01)


def test_what_is_wrong_is_in_status_and_metrics_until_it_works(tmp_path: Path) -> None:
    house = housekeeping(tmp_path, "127.0.0.1:0")
    house.parts["pin"] = Part(2)
    house.start()
    values = read_status(tmp_path / "status.json").values
    assert [*trouble_lines(values)] == ["pin               does not work: no chip"]
    assert house._server is not None
    ticked(house, lambda: house._server and house._server._server)
    ticked(house, lambda: not read_status(tmp_path / "status.json").values["troubles"])
    house.parts["pin"].times = 99  # type: ignore[attr-defined]
    house.tick()
    page = urllib.request.urlopen(f"http://{house._server.address}/metrics", timeout=5).read()
    assert b'mqtick_client_trouble{part="pin"} 1' in page
    house.stop()


def test_systemd_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        house = housekeeping(tmp_path)
        house.parts["pin"] = Part(99)
        house.tick()
        assert systemd.recv(4096) == b"STATUS=synchronised; no chip"
        house.stop()


def test_a_taken_port_is_a_trouble_that_ends_with_who_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        house = housekeeping(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}")
        house.start()
        metrics = house.parts["metrics"]
        ticked(house, lambda: "Address already in use" in metrics.trouble)
    ticked(house, lambda: not metrics.trouble)
    house.stop()
