"""Throws octets at everything that takes them from a network or a file of others: `make fuzz`.

    fuzz_rooms.py SECONDS      by atheris, which follows the code's branches; without it (there is
                               none for this Python or processor) by Hypothesis, which only varies

What is found is printed with the octets, and the exit code is not 0: make it a test of its room.
"""

# ruff: noqa: PLC0415  (imported late, so that atheris can watch)
from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import queue
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
Target = Callable[[bytes], Any]


def of_file(read: Callable[[Path], object], *refusals: type[Exception]) -> Target:
    """A reader of files: it reads, or refuses."""
    handle = os.memfd_create("fuzz")

    def run(data: bytes) -> None:
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)
        with contextlib.suppress(*refusals):
            read(Path(f"/proc/self/fd/{handle}"))

    return run


def of_octets(read: Target, *refusals: type[Exception]) -> Target:
    """A reader of octets: it reads, or refuses."""

    def run(data: bytes) -> None:
        with contextlib.suppress(*refusals):
            read(data)

    return run


def of_text(read: Callable[[str], object], *refusals: type[Exception]) -> Target:
    """A reader of text: it reads, or refuses."""
    return of_octets(lambda data: read(data.decode("utf-8", "replace")), *refusals)


def http(data: bytes) -> None:
    """A request for a page."""
    from mqtick.service.page_server import _Handler

    connection: Any = SimpleNamespace(
        makefile=lambda *_: io.BytesIO(data), settimeout=lambda _: None, sendall=lambda _: None
    )
    server: Any = SimpleNamespace(pages={"/metrics": lambda: ("text/plain", b"")})
    _Handler(connection, ("", 0), server)


def node_answer(data: bytes) -> None:
    """What a node answers to the runner of an experiment."""
    from mqtick.lab.runner.control import Control
    from mqtick.mqtt.frames import Arrival
    from mqtick.mqtt.stamps import Stamp, StampSource
    from mqtick.protocol.experiments import Parts
    from mqtick.protocol.topics import TopicTree

    control = object.__new__(Control)
    control._tree = TopicTree()
    control._waiting = {"0": ("client:a", Parts(), queue.SimpleQueue())}
    topic = control._tree.answer("client:a")
    control._on_publish(Arrival(topic, data, Stamp(0, StampSource.USER), False, b""))


def crowd_member(data: bytes) -> None:
    """What a broker says to one of a crowd, whose packets are read without a library."""
    from mqtick.lab.load.member import Member, State

    class Alone(Member):
        def __init__(self) -> None:
            self.state, self.messages, self._rest = State.CONNECTING, 0, b""

        def _send(self, packet: bytes) -> None:
            pass

        def _end(self, state: State, problem: str) -> None:
            self.state = state

    member: Any = Alone()
    with contextlib.suppress(AttributeError):  # once it is up it asks its loop
        for at in range(0, len(data), 3):
            member._feed(data[at : at + 3])
    assert len(member._rest) < 1 << 16


def crowd_member_over_udp(data: bytes) -> None:
    """The same of one that is a UDP socket: a datagram at a time."""
    from mqtick.lab.load.member import State
    from mqtick.lab.load.udp_member import UdpMember

    class Alone(UdpMember):
        def __init__(self) -> None:
            self.state, self.messages, self._may_prove = State.CONNECTING, 0, 1
            self._request, self.sent, self._accepted = b"", 0, False

        def _send(self, packet: bytes) -> None:
            self.sent += 1

        def _end(self, state: State, problem: str) -> None:
            self.state = state

    member: Any = Alone()
    with contextlib.suppress(AttributeError):  # once it is up it asks its loop
        for at in range(0, len(data), 20):
            member._take(data[at : at + 20])
    assert member.sent <= 2


def capture(path: Path) -> None:
    """A file of an oscilloscope or logic analyser."""
    from mqtick.analysis.readers.registry import open_capture

    for number, _ in enumerate(open_capture(path).read()):
        if number > 4:
            return


def room_targets() -> list[Target]:
    """Return what takes octets in the other rooms."""
    from mqtick.client.fleet.clients import read as read_client
    from mqtick.lab.runner.plan import plan_from_json
    from mqtick.lab.scope.contributed.siglent.descriptor import Descriptor
    from mqtick.lab.scope.conversation import InstrumentError
    from mqtick.protocol.errors import DecodeError
    from mqtick.recording.capture import CaptureError
    from mqtick.service import chronyd_csv
    from mqtick.service.settings.load import SettingsError, load
    from mqtick.service.settings.program import ConnectionSettings
    from mqtick.service.status_file import StatusError, read_status

    return [
        http,
        node_answer,
        crowd_member,
        crowd_member_over_udp,
        of_file(read_status, StatusError),
        of_file(lambda path: load(ConnectionSettings, path), SettingsError),
        of_file(capture, CaptureError),
        of_octets(Descriptor.parse, InstrumentError),
        of_octets(lambda data: read_client("pi1", data), DecodeError),
        of_octets(lambda data: plan_from_json(json.loads(data)), ValueError, RecursionError),
        of_text(chronyd_csv.parse_tracking, chronyd_csv.ChronydError),
        of_text(chronyd_csv.parse_sources, chronyd_csv.ChronydError),
    ]


SEEDS = [
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b'{"id": "0123abcd", "ok": true, "sum": 2}',
    b'{"id": "0", "part": 0, "parts": 1, "text": "{}"}',
    b"\x20\x02\x00\x00\x90\x03\x00\x01\x00\x30\x05\x00\x01ahi",
    b'{"version": 1, "program": "mqtick-client", "pid": 1, "written_boottime_ns": 1, "status": {}}',
    b'{"state":"synchronised","clock_error_ns":1,"server":"0","troubles":{"pin":"why"}}',
    b'broker = "mqtt://b"\nkeepalive_s = 15\n[pin]\nline = 17\n',
    b"Time (s),Channel 1,Channel 2\n-1e-6,0.0,0.1\n0,3.3,0.1\n1e-6,3.3,3.2\n",
    b"$timescale 1 ns $end\n$scope module top $end\n$var wire 1 ! D0 $end\n"
    b"$upscope $end\n$enddefinitions $end\n#0\n0!\n#100\n1!\n",
    b"A29FC87B,162.159.200.1,4,1795320000.1,0.0001,0.0,0.0,1.5,0.0,0.1,0.03,0.002,64.0,Normal\n",
    b"#,*,MQT0,0,4,377,10,0.0000012,0.0000012,0.000020\n",
]


class Thrower:
    """Gives octets to the one of all targets that their first octet chooses."""

    def __init__(self) -> None:
        warnings.simplefilter("error", RuntimeWarning)  # of numpy: a user would see it
        sys.path.insert(0, str(ROOT / "protocol/tests/fuzz"))
        import fuzz_decoders as room

        self._throw, ours, others = room.throw, room.targets(), room_targets()
        self.targets = [*ours, *others]
        # what is well formed for one target is a beginning for its neighbours
        self.corpus = [bytes((at,)) + seed for at in range(len(ours)) for seed in room.seeds()]
        for at in range(len(ours), len(self.targets)):
            self.corpus += [bytes((at,)) + seed for seed in SEEDS]
            self(bytes((at,)))  # so that everything is imported

    def __call__(self, data: bytes) -> None:
        if data:
            self._throw(data[1:], [self.targets[data[0] % len(self.targets)]])


SAME_RUNS = 40_000


def by_atheris(seconds: float) -> None:
    """Follow the branches of the code; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["mqtick", "paho"]):
        throw = Thrower()
    folder = ROOT / "build/fuzz"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "corpus").mkdir(parents=True)
    for number, seed in enumerate(throw.corpus):
        (folder / "corpus" / f"{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds:.0f}", "-max_len=1024", "-rss_limit_mb=1024"]
    if os.environ.get("MQTICK_SAME_EXAMPLES"):  # a change is judged by what it changed, not by luck
        limits += ["-seed=1", f"-runs={SAME_RUNS}"]
    print(f"{len(throw.targets)} targets by atheris; what is found is kept in {folder}", flush=True)
    atheris.Setup(
        [sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(folder / "corpus")], throw
    )
    atheris.Fuzz()


def by_hypothesis(seconds: float, throw: Thrower) -> None:
    """Vary what is well formed, without a look at the code."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    print(f"{len(throw.targets)} targets by Hypothesis", flush=True)
    end, count = time.monotonic() + seconds, 0

    # Not reduced: that takes minutes, and the test that is made of it can be cut by hand.
    @settings(
        database=None,
        deadline=None,
        max_examples=200,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(throw.corpus), st.data())
    def vary(seed: bytes, data: st.DataObject) -> None:
        nonlocal count
        count += 1
        octets = bytearray(seed)
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(1, len(octets)))
            octets[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        throw(bytes(octets))

    while time.monotonic() < end:
        vary()
    print(f"nothing found in {count} runs, {seconds:g} s")


def main() -> None:
    """Run the command line."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if importlib.util.find_spec("atheris"):
        by_atheris(seconds)
    else:
        print(f"atheris is not there for Python {sys.version.split()[0]} on {os.uname().machine}:")
        by_hypothesis(seconds, Thrower())


if __name__ == "__main__":
    main()
