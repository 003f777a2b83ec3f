"""A whole time server whose clock is slewed, in virtual time: what it says of UTC, and of its rate.

Judged by its messages alone, as they leave it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile_broker import Line
from play import Conditions, Play
from virtual_time import SECOND, US

from mqtick.mqtt.stamps import Transmit
from mqtick.protocol import precise
from mqtick.protocol.precise import Echo, FollowUp, Reply, Time
from mqtick.timeserver.server import Server

SLEW_AFTER_S = 30
OTHERS_NS = 50 * US
"""What else chronyd does not know of UTC."""
YEAR_2106_NS = (1 << 32) * SECOND


class Wire:
    """The messages of a server whose clock is `behind_us`, which chronyd corrects with `ppm`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, behind_us: int, ppm: int) -> None:
        self.said: list[tuple[int, precise.Message]] = []
        self.play = play = Play(Conditions(server_offset_ns=-behind_us * US, server_early_s=0.0))
        world, publish = play.world, Line.publish

        def corrected_ns(true_ns: int) -> int:
            seconds = max(0.0, (true_ns - world.now_ns + world.elapsed_ns) / SECOND - SLEW_AFTER_S)
            most = min(seconds * ppm, abs(behind_us))
            return round(math.copysign(most, behind_us) * US)

        def publish_and_note(
            line: Line, topic: str, payload: bytes, properties: bytes = b"", *, stamped: bool = True
        ) -> Transmit | None:
            if line.role == "server" and topic.split("/")[1] in "trf":
                self.said.append((world.utc_ns, precise.decode(payload)))
            return publish(line, topic, payload, properties, stamped=stamped)

        def reference(server: Server) -> object:
            left_ns = abs(behind_us * US - corrected_ns(world.now_ns))
            return replace(server._trusted, root_distance_ns=left_ns + OTHERS_NS)

        monkeypatch.setattr(play.server_clock, "_ahead_ns", corrected_ns)
        monkeypatch.setattr(Line, "publish", publish_and_note)
        monkeypatch.setattr(Server, "reference", property(reference))

    def run(self, seconds: float) -> None:
        with self.play.running() as play:
            play.run(seconds)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Wire]:
    return lambda behind_us, ppm: Wire(monkeypatch, behind_us, ppm)


@pytest.mark.parametrize(
    ("behind_us", "ppm"),
    [(20, 1), (500, 10), (-500, 10), (5_000, 100), (20_000, 500), (50_000, 83_333)],
)
def test_utc_is_within_the_root_distance_and_the_rate_as_promised(
    wire: Callable[[int, int], Wire], behind_us: int, ppm: int
) -> None:
    heard = wire(behind_us, ppm)
    heard.run(150)
    stated = [(at, one) for at, one in heard.said if isinstance(one, Time | Reply)]
    for utc_ns, message in stated:
        assert abs(message.transmit_ns - utc_ns) <= message.root_distance_ns
    assert stated[-1][1].root_distance_ns <= OTHERS_NS + 101 * US, "in the end it is UTC again"
    completed = [one for _, one in heard.said if isinstance(one, FollowUp | Echo)]
    assert {one.rate_change_ppb for one in completed} == {None, 750}
    parts: dict[int, list[tuple[int, int]]] = {}
    for utc_ns, message in stated:
        parts.setdefault(message.generation, []).append((utc_ns, message.transmit_ns - utc_ns))
    assert len(parts) in ((1,) if behind_us == 20 else (2, 3))
    anew = heard.play.server.counters.done["clock-taken-anew"]
    assert len(parts) - 1 == anew
    most_us = max(one.root_distance_ns for _, one in stated) / US
    print(f"\n{behind_us} us with {ppm} ppm: at most {most_us:.0f} us stated, {anew} times anew")
    for part in parts.values():
        slopes = [slope for at in range(10, len(part), 10) if (slope := rate_ppb(part[:at])) != 0]
        assert max(slopes, default=0) - min(slopes, default=0) <= 750


def rate_ppb(part: list[tuple[int, int]]) -> float:
    """How fast the served time gains on UTC in the last ten of these messages."""
    (first_ns, before_ns), *_, (last_ns, after_ns) = part[-10:]
    return (after_ns - before_ns) / (last_ns - first_ns) * 1e9 if last_ns > first_ns else 0.0


@pytest.mark.parametrize("years_later", [0, 1])
def test_server_and_client_run_on_after_the_year_2106(
    monkeypatch: pytest.MonkeyPatch, years_later: int
) -> None:
    """At the turn itself, and in the year after."""
    start_ns = YEAR_2106_NS - 20 * SECOND + years_later * 31_536_000 * SECOND
    monkeypatch.setattr("virtual_time.EPOCH_NS", start_ns)
    play = Play(Conditions())
    with play.running():
        play.run(60)
    assert play.server.clock.time_ns() > YEAR_2106_NS
    assert (play.state, play.faults) == ("synchronised", [])
    assert abs(play.error_ns or SECOND) < 100 * US
