"""Messages of no octet, of 256 KiB, and with each field at its extremes: nothing breaks.

1970 and 2262, a residence of 2^48 ns, corrections of both signs, root distances of a century, every
leap flag: whatever the octets of a field can say.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile_broker import Delivery, Honest
from play import Conditions, Play
from virtual_time import MS, SECOND

from mqtick.client.metrics import metrics
from mqtick.client.status import status
from mqtick.client.status_text import sources_lines, status_lines

FILLS = (b"\0", b"\xff", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80\0\0\0\0\0\0\0")


class Extreme(Honest):
    """Writes an extreme into some octets of some messages, or makes them short or long."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.done = 0
        self.stopped = False

    def change(self, deliveries: Sequence[Delivery]) -> Iterable[Delivery]:
        for delivery in deliveries:
            is_time = delivery.topic.split("/")[1] in "trfqcl"  # claims are another matter
            if self.stopped or not is_time or self._chance.random() < 0.3:
                yield delivery
                continue
            self.done += 1
            yield delivery._replace(payload=self._extreme(delivery.payload))
            if self._chance.random() < 0.5:
                yield delivery  # the true one comes too

    def _extreme(self, payload: bytes) -> bytes:
        chance, kind = self._chance, self._chance.random()
        if kind < 0.2 or len(payload) < 3:
            return chance.choice((b"", payload[:1], payload[:-1], payload + b"\0", bytes(1 << 18)))
        at, width = chance.randrange(len(payload)), chance.choice((1, 2, 4, 6, 8, 10))
        fill = (chance.choice(FILLS) * 10)[:width]
        return (payload[:at] + fill + payload[at + width :])[: len(payload)]


def played(seed: int, *, keys: bool, **more: object) -> tuple[Play, Extreme]:
    """Twenty seconds of that, in each of which everything is told; then twenty of peace."""
    play = Play(Conditions(seed=seed, keys=keys, **more))  # type: ignore[arg-type]
    play.broker.attack = attack = Extreme(seed)
    with play.running():
        for second in range(40):
            attack.stopped = second >= 20
            play.run(1.0)
            told = json.loads(json.dumps(status(play.agent, {})))
            assert [*status_lines(told), *sources_lines(told), *metrics(told)]
    assert attack.done > 50
    return play, attack


@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_with_keys_no_extreme_moves_anything(seed: int, fills: bool) -> None:
    play, _ = played(seed, keys=True, fills=fills)
    assert play.faults == []
    assert play.agent.refused["tag"] > 10
    assert play.state == "synchronised"


@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_without_keys_extremes_end_no_program_and_the_true_time_comes_back(
    seed: int, fills: bool
) -> None:
    play, _ = played(seed, keys=False, fills=fills)
    assert sum(play.agent.refused.values()) > 10
    assert play.state == "synchronised"
    assert abs(play.error_ns or SECOND) < MS
