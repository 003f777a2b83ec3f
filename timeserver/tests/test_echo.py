"""The echoes' subscriptions, on the reference of our broker over UDP, where they are few."""

from __future__ import annotations

import sys
from pathlib import Path

from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.echo import EchoPair

sys.path.insert(0, str(Path(__file__).parents[2] / "mqtt/tests"))
from udp_peer import Door


def test_all_subscriptions_but_the_probes_are_for_clients() -> None:
    placed: list[str] = []
    with Door().open() as door:
        url, loop = parse_broker_url(door.url), Loop()
        echo = EchoPair(loop, url, "s", 0, TopicTree(), lambda *_: None, placed.append)
        echo.start()
        try:
            assert loop.turn_until(lambda: placed, 30)
            for number in range(40):
                echo.ready(f"c{number}")
            assert loop.turn_until(lambda: echo.clients == 31, 30)
            orders = [one for one in door.broker.subscriptions if b"/order" in one]
            assert orders == [placed[-1].encode()]
        finally:
            echo.close()
            loop.close()
