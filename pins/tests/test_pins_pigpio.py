"""The package pigpio against a simulated daemon on real TCP, well and ill behaved."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqtick.pins import Keeper, LatencyClass, Output, PinError, PinSettings
from mqtick.pins.pigpio import is_local, open_pin, supports

MODES, WRITE, BR1, HWVER, TRIG, NC, NOIB = 0, 4, 10, 17, 37, 21, 99
OURS = (MODES, WRITE, HWVER, TRIG)  # the others are the package's, for notifications
PI_3B_PLUS, PI_4B, PI_5 = 0xA020D3, 0xC03111, 0xC04170
PI_NOT_PERMITTED = -41

Request = tuple[int, int, int, bytes]
Misbehaviour = Callable[[socket.socket, Request], bool]


class SimulatedDaemon:
    """Speaks the protocol of pigpio's "Socket Interface" page, and records what it is asked.

    `misbehave` may answer instead (and then returns True).
    """

    def __init__(self) -> None:
        self.revision = PI_4B
        self.results: dict[int, int] = {}
        self.requests: list[Request] = []
        self.misbehave: Misbehaviour | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        for connection in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(2)

    def hang_up(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while header := connection.recv(16, socket.MSG_WAITALL):
                command, p1, p2, octets = struct.unpack("<4I", header)
                extension = connection.recv(octets, socket.MSG_WAITALL) if octets else b""
                request = (command, p1, p2, extension)
                if command in OURS:
                    self.requests.append(request)
                if self.misbehave is not None and self.misbehave(connection, request):
                    continue
                result = self.revision if command == HWVER else 0
                connection.sendall(self.answer(request, self.results.get(command, result)))

    @staticmethod
    def answer(request: Request, result: int) -> bytes:
        return struct.pack("<4I", *request[:3], result & 0xFFFF_FFFF)


@pytest.fixture
def daemon() -> Iterator[SimulatedDaemon]:
    simulated = SimulatedDaemon()
    yield simulated
    simulated.close()


@pytest.fixture
def no_board(tmp_path: Path) -> Path:
    return tmp_path / "no-device-tree"


def wish(daemon: SimulatedDaemon, **changes: object) -> PinSettings:
    kept: dict[str, object] = {
        "backend": "pigpio",
        "host": "127.0.0.1",
        "port": daemon.port,
        "line": 17,
        "timeout_ms": 2000,
    }
    return PinSettings(**(kept | changes))  # type: ignore[arg-type]


def opened(daemon: SimulatedDaemon, no_board: Path, **changes: object) -> Output:
    settings = wish(daemon, **changes)
    output = Output(open_pin(settings, compatible=no_board), settings)
    daemon.requests.clear()
    return output


@pytest.mark.parametrize("active_low", [False, True])
def test_opening_asks_for_the_board_then_rests_then_drives(
    daemon: SimulatedDaemon, no_board: Path, active_low: bool
) -> None:
    open_pin(wish(daemon, active_low=active_low), compatible=no_board).close()
    assert daemon.requests == [
        (HWVER, 0, 0, b""),
        (WRITE, 17, active_low, b""),
        (MODES, 17, 1, b""),
    ]


def test_toggling_writes_and_waits_for_each_answer(daemon: SimulatedDaemon, no_board: Path) -> None:
    with opened(daemon, no_board) as output:
        edges = [output.fire() for _ in range(3)]
        assert [edge.made for edge in edges] == [True] * 3
        assert daemon.requests == [(WRITE, 17, level, b"") for level in (1, 0, 1)]
        assert output.latency_class is LatencyClass.DAEMON
    assert daemon.requests[-1] == (WRITE, 17, 0, b"")
    assert output.errors == 0


@pytest.mark.parametrize("active_low", [False, True])
@pytest.mark.parametrize("width_us", [1, 100])
def test_a_short_pulse_is_one_trigger(
    daemon: SimulatedDaemon, no_board: Path, width_us: int, active_low: bool
) -> None:
    output = opened(daemon, no_board, mode="pulse", width_us=width_us, active_low=active_low)
    edge = output.fire()
    assert edge.made
    assert edge.level is not active_low
    assert daemon.requests == [(TRIG, 17, width_us, struct.pack("<I", not active_low))]
    assert output.release_after_ns == 0


def test_a_long_pulse_is_two_writes(daemon: SimulatedDaemon, no_board: Path) -> None:
    output = opened(daemon, no_board, mode="pulse", width_us=101)
    output.fire()
    output.release()
    assert daemon.requests == [(WRITE, 17, 1, b""), (WRITE, 17, 0, b"")]


def no_answer(connection: socket.socket, request: Request) -> bool:
    return True


def short_answer(connection: socket.socket, request: Request) -> bool:
    connection.sendall(SimulatedDaemon.answer(request, 0)[:7])
    return True


def hang_up(connection: socket.socket, request: Request) -> bool:
    connection.shutdown(socket.SHUT_RDWR)
    return True


@pytest.mark.parametrize(
    ("misbehave", "sentence"),
    [
        (no_answer, "no answer within 100 ms"),
        (short_answer, "a buffer of 16 bytes"),
        (hang_up, "a buffer of 16 bytes"),
    ],
)
def test_a_daemon_that_misbehaves_costs_edges_and_never_the_program_and_is_connected_again(
    daemon: SimulatedDaemon,
    monkeypatch: pytest.MonkeyPatch,
    misbehave: Misbehaviour,
    sentence: str,
) -> None:
    monkeypatch.setattr("mqtick.pins.keeper._RETRY_S", 0.1)
    keeper = Keeper(wish(daemon, timeout_ms=100))
    assert keeper.output.fire().made
    daemon.misbehave = misbehave
    assert not keeper.output.fire().made
    assert sentence in keeper.output.last_error
    for _ in range(50):
        begin_s = time.monotonic()
        keeper.tend()
        assert not keeper.output.fire().made
        assert time.monotonic() - begin_s < 1
    daemon.misbehave = None
    daemon.hang_up()  # as a daemon does that is started again
    wait_until_open(keeper)
    assert keeper.output.fire().made
    keeper.output.close()


def wait_until_open(keeper: Keeper) -> None:
    deadline_s = time.monotonic() + 20
    while keeper.trouble:
        assert time.monotonic() < deadline_s, keeper.trouble
        time.sleep(0.05)
        keeper.tend()


def test_a_daemon_that_hangs_from_the_start_holds_nobody_up(daemon: SimulatedDaemon) -> None:
    daemon.misbehave = no_answer
    begin_s = time.monotonic()
    keeper = Keeper(wish(daemon))
    assert time.monotonic() - begin_s < 5
    assert "has not answered yet" in keeper.trouble
    assert not keeper.output.fire().made
    assert "has not answered yet" in keeper.output.last_error


def test_a_daemon_that_ends_leaves_no_thread_that_spins(
    daemon: SimulatedDaemon, no_board: Path
) -> None:
    """The package's own thread does (1.78), if it is left running."""
    before = set(threading.enumerate())
    open_pin(wish(daemon), compatible=no_board)
    deadline_s = time.monotonic() + 10
    while any("_callback" in type(one).__name__ for one in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("command", [WRITE, MODES])
def test_an_error_code_is_explained(daemon: SimulatedDaemon, no_board: Path, command: int) -> None:
    daemon.results[command] = PI_NOT_PERMITTED
    with pytest.raises(PinError, match="permi"):
        open_pin(wish(daemon), compatible=no_board)


def test_a_daemon_on_a_pi_5_is_refused(daemon: SimulatedDaemon, no_board: Path) -> None:
    daemon.revision = PI_5
    with pytest.raises(PinError, match=r"pigpio does not support the RP1 .* use .* gpiod or gpiom"):
        open_pin(wish(daemon), compatible=no_board)
    assert [request[0] for request in daemon.requests] == [HWVER]


def test_on_a_pi_5_the_local_daemon_is_not_even_asked(
    daemon: SimulatedDaemon, tmp_path: Path
) -> None:
    compatible = tmp_path / "compatible"
    compatible.write_bytes(b"raspberrypi,5-model-b\0brcm,bcm2712\0")
    with pytest.raises(PinError, match=r"pigpio does not support .*raspberrypi,5-model-b"):
        open_pin(wish(daemon), compatible=compatible)
    assert daemon.requests == []


@pytest.mark.parametrize(
    ("revision", "supported"),
    [
        (0x0002, True),  # Model B, old style
        (0x0015, True),
        (0x9000C1, True),  # Zero W
        (0xA01041, True),  # 2B
        (PI_3B_PLUS, True),
        (0x902120, True),  # Zero 2 W
        (PI_4B, True),
        (0x82C03111, True),  # 4B with bits of the upper octet set
        (PI_5, False),
        (0xB04180, False),  # Compute Module 5
        (0xD04190, False),  # 500
        (0, True),  # the daemon does not know
    ],
)
def test_boards_are_told_apart_by_their_revision_code(revision: int, supported: bool) -> None:
    assert supports(revision) is supported


def test_a_revision_code_with_its_highest_bit_set_is_no_error(
    daemon: SimulatedDaemon, no_board: Path
) -> None:
    daemon.revision = 0x82C03111
    open_pin(wish(daemon), compatible=no_board).close()


def test_no_daemon_is_explained(daemon: SimulatedDaemon, no_board: Path) -> None:
    daemon.close()
    with pytest.raises(PinError, match=r"No pigpio daemon can be reached at 127.*systemctl start"):
        open_pin(wish(daemon), compatible=no_board)


@pytest.mark.parametrize("line", [32, 53])
def test_a_gpio_the_daemon_does_not_drive_is_refused(
    daemon: SimulatedDaemon, no_board: Path, line: int
) -> None:
    with pytest.raises(PinError, match=rf"line is {line}, but the pigpio daemon drives GPIO 0 to"):
        open_pin(wish(daemon, line=line), compatible=no_board)
    assert daemon.requests == []


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("192.0.2.7", False),
        ("pi.example.org", False),
    ],
)
def test_the_own_machine_is_known_by_its_names(host: str, local: bool) -> None:
    assert is_local(host) is local
