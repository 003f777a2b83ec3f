"""The private echo on a broker over UDP, which has room for so many subscriptions only."""

from __future__ import annotations

import pytest
from udp_peer import Door

from mqtick.mqtt import udp_session
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.echo import EchoPair

TREE = TopicTree()
NAMES = [f"pi{number}" for number in range(10, 20)]
TOPICS = {TREE.reply(0, name).encode() for name in NAMES}


def test_a_client_for_whom_there_is_no_room_takes_none_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(udp_session, "_AGAIN_NS", 50_000_000)
    loop = Loop()
    with Door().open() as door:
        door.broker.settings.subscriptions_a_subscriber = 6
        broker = parse_broker_url(door.url)
        pair = EchoPair(loop, broker, "s", 0, TREE, lambda *_: None, lambda _topic: None)
        pair.start()
        assert loop.turn_until(lambda: pair.warmer.connected and pair.first.connected, 20)
        for name in NAMES:
            pair.ready(name)
        last = TREE.reply(0, NAMES[-1]).encode()

        def given_up() -> set[bytes]:
            said = b"".join(one for one in door.taken if one[:1] == b"\xa2")
            return {topic for topic in TOPICS if topic in said}

        assert loop.turn_until(lambda: last in given_up(), 20)
        door.broker.settings.subscriptions_a_subscriber = 99

        def kept() -> set[bytes]:
            return given_up() & door.broker.subscriptions.keys()

        assert loop.turn_until(lambda: not kept(), 20)  # what was on its way is taken back
        loop.turn_for(0.3)
        assert len(given_up()) < len(TOPICS)
        assert not kept()
        pair.close()
    loop.close()
