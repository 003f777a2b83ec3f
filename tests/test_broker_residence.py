"""`mqtick-broker` over each transport: what it states of a copy, beside the kernel's stamps.

The sender's stamp of a message is taken before the broker's, and the hearer's after that of the
copy's departure: so what a copy states is never more than lies between the two, nor is it with its
correction. What is left then is the two ways through the kernel.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from demo.local_broker import MqtickBroker, free_port, running
from mqtick.mqtt import Arrival, Broker, Connection, Loop, StampSource
from mqtick.protocol.residence import Copies, Residence

pytestmark = pytest.mark.broker

TIMED, OTHER = "mqtick/t", "other"
SCHEMES = ("mqtt", "mqtts", "ws", "wss")
APART_S = 0.03
ANOTHERS_NS = 20_000_000
"""Messages are further apart: so wrong is a correction that belongs to another copy."""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Where one broker listens, by scheme."""
    folder = tmp_path_factory.mktemp("broker")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = "-subj /CN=broker -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out ca.pem"
    subprocess.run([*command.split(), *names.split()], cwd=folder, check=True, capture_output=True)
    lines, found = [], {}
    for scheme in SCHEMES:
        ca_file = f"{folder}/ca.pem" if scheme in ("mqtts", "wss") else None
        found[scheme] = Broker(scheme, "127.0.0.1", free_port(), ca_file=ca_file)
        lines.append(f'[[listener]]\naddress = "127.0.0.1:{found[scheme].port}"')
        if scheme in ("ws", "wss"):
            lines.append('transport = "websocket"')
        if ca_file:
            lines.append(f'tls = {{ certificate = "{ca_file}", key = "{folder}/key.pem" }}')
    with running(MqtickBroker(folder, "\n".join(lines))):
        yield found


class Rounds:
    """A sender and a hearer over one transport, and each message that was timed."""

    def __init__(self, broker: Broker) -> None:
        self.loop, self.copies = Loop(), Copies()
        self.granted: list[bool] = []
        self.heard: list[tuple[Arrival, Residence | None]] = []
        self.hearer = self._connect(broker, "hearer")
        self.sender = self._connect(broker, "sender")
        self.hearer.subscribe([TIMED, OTHER], self.granted.append)
        self._wait(lambda: self.granted == [True])

    def _connect(self, broker: Broker, name: str) -> Connection:
        connection = Connection(self.loop, broker, name, on_publish=self._hear, on_up=lambda: None)
        connection.start()
        self._wait(lambda: connection.connected)
        return connection

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self.loop.turn_until(condition, PATIENCE_S)

    def _hear(self, arrival: Arrival) -> None:
        self.copies.note(arrival.payload)
        self.heard.append((arrival, self.copies.current))

    def between_ns(self, topic: str, payload: bytes) -> int | None:
        """From the sender's stamp of a message to the hearer's; None if the kernel lost one."""
        before = len(self.heard)
        sent = self.sender.publish(topic, payload)
        assert sent is not None
        self._wait(lambda: len(self.heard) > before)
        self.sender.collect_stamps()
        stamps = self.heard[-1][0].stamp, sent.stamp
        if any(stamp.source is not StampSource.KERNEL for stamp in stamps):
            return None
        return stamps[0].realtime_ns - stamps[1].realtime_ns

    def close(self) -> None:
        self.hearer.close()
        self.sender.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_copy_states_and_its_correction_are_what_the_kernels_stamps_allow(
    brokers: dict[str, Broker], scheme: str
) -> None:
    rounds = Rounds(brokers[scheme])
    timed: list[tuple[int, Residence]] = []
    for number in range(40):
        between_ns = rounds.between_ns(TIMED, b"\x20" + bytes(31))
        residence = rounds.heard[-1][1]
        assert residence is not None, "each copy states it"
        if between_ns is not None:
            timed.append((between_ns, residence))
        if number % 4 == 1:  # octets that no stamp is asked for, more than a record or frame holds
            rounds.between_ns(OTHER, bytes(20_000 + number))
        rounds.loop.turn_for(APART_S)
    rounds.close()
    corrected = [(ns, one) for ns, one in timed if one.correction_ns is not None]
    assert len(corrected) > 20
    for between_ns, one in timed:
        assert 0 < one.stated >> 16 <= between_ns
    for between_ns, one in corrected:
        assert one.stated >> 16 <= one.ns <= between_ns
        assert between_ns - one.ns < ANOTHERS_NS
