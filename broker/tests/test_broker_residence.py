"""`mqtick-broker` over each transport: what it states of a copy, beside the kernel's stamps.

The sender's stamp of a message is taken before the broker's, and the hearer's after that of the
copy's departure: so what a copy states is never more than lies between the two, nor is it with its
correction. What is left then is the two ways through the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.tests.harness.timing import APART_S, OTHER, TIMED, Rounds
from broker.tests.harness.tools import certificate
from demo.local_broker import MqtickBroker, free_port, running
from mqtick.mqtt import Broker
from mqtick.protocol.residence import Residence

pytestmark = pytest.mark.broker

SCHEMES = ("mqtt", "mqtts", "ws", "wss")
ANOTHERS_NS = 20_000_000
"""Messages are further apart: so wrong is a correction that belongs to another copy."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Where one broker listens, by scheme."""
    folder = tmp_path_factory.mktemp("broker")
    tls = certificate(folder)
    lines, found = [], {}
    for scheme in SCHEMES:
        ca_file = f"{folder}/certificate.pem" if scheme in ("mqtts", "wss") else None
        found[scheme] = Broker(scheme, "127.0.0.1", free_port(), ca_file=ca_file)
        lines.append(f'[[listener]]\naddress = "127.0.0.1:{found[scheme].port}"')
        if scheme in ("ws", "wss"):
            lines.append('transport = "websocket"')
        if ca_file:
            lines.append(tls)
    with running(MqtickBroker(folder, "\n".join(lines))):
        yield found


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
