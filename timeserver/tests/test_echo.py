"""The echoes' subscriptions, on the reference of our broker over UDP, where they are few."""

from __future__ import annotations

from typing import Self

from udp_peer import Door

from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.protocol.topics import MAX_TOPIC_OCTETS, TopicTree
from mqtick.timeserver.echo import EchoPair


class Echoes:
    """An echo pair at a door, and 40 clients that want an echo as soon as there is a probe."""

    def __init__(self, door: Door) -> None:
        self.door, self.loop = door, Loop()
        self.placed: list[str] = []
        url, tree = parse_broker_url(door.url), TopicTree()
        self.pair = EchoPair(self.loop, url, "s", 0, tree, lambda *_: None, self.placed.append)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pair.close()
        self.loop.close()

    def ask(self) -> None:
        assert self.loop.turn_until(lambda: self.placed, 30)
        for number in range(40):
            self.pair.ready(f"c{number}")

    def come_to(self, clients: int) -> bool:
        """Wait for that many clients with an echo, and one probe in place."""

        def there() -> bool:
            orders = [one for one in list(self.door.broker.subscriptions) if b"/order" in one]
            return self.pair.clients == clients and orders == [self.placed[-1].encode()]

        return self.loop.turn_until(there, 30)


def test_all_subscriptions_but_the_probes_are_for_clients() -> None:
    with Door().open() as door, Echoes(door) as echoes:
        echoes.pair.start()
        echoes.ask()
        assert echoes.come_to(31)


def test_a_probe_that_finds_no_place_gets_that_of_a_client() -> None:
    """The probe moves when the last echo connects; a client may take the place that it left."""
    held = True
    with Door().open() as door, Echoes(door) as echoes:

        def mangle(answer: bytes) -> list[bytes]:
            asked = door.taken[-1]
            if b"s-last" in asked:
                return [] if held else [answer]
            full = not held and echoes.pair.clients == 31
            if full and asked[0] == 0x82 and b"/order" in asked:
                answer = answer[:4] + b"\x80"
            return [answer]

        door.mangle = mangle
        echoes.pair.start()
        echoes.ask()
        assert echoes.come_to(31)
        held = False
        assert echoes.come_to(30)


def test_of_messages_that_are_too_long_little_is_kept() -> None:
    """Whoever writes reply topics can send thousands; they wait until the main thread asks."""
    taken: list[Arrival] = []
    loop = Loop()
    url, tree = parse_broker_url("mqtt://nowhere.invalid"), TopicTree()
    pair = EchoPair(
        loop, url, "s", 0, tree, lambda arrival, _last: taken.append(arrival), lambda _topic: None
    )
    long, stamp = b"x" * 100_000, Stamp(1, StampSource.KERNEL)
    reply = Arrival(tree.reply(0, "pi7"), bytes(64), stamp, False, b"")
    for sent in (reply, reply._replace(topic="r" * 60_000, payload=long, properties=long)):
        pair.last.on_publish(sent)
    pair.hear(False)
    loop.close()
    assert taken[0] == reply
    assert len(taken[1].topic) == 1 + MAX_TOPIC_OCTETS, "too long, and refused as such"
    assert len(taken[1].payload) == 1 + 64
    assert taken[1].properties == b""
