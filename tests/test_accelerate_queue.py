"""A queue between clone and card: what the residence leaves out, and copies without room in it.

The queue is tc's token bucket on the broker's interface, as slow as a card of 20 Mb/s.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from pathlib import Path

import pytest
from accelerate_rig import where_the_kernel_can

from bench.accelerated_residence import measure
from demo.local_sensors import (
    BROKER_SIDE,
    CLIENT_SIDE,
    Sensor,
    between_namespaces,
    in_the_kernel,
    until,
)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

BITS_A_NS = 0.02
BURST = 1600
SLOW = ("tbf", "rate", "20mbit", "burst", str(BURST), "limit")


def test_the_residence_says_too_little_by_the_wait_for_the_card_and_never_too_much(
    tmp_path: Path,
) -> None:
    count = 100
    with where_the_kernel_can():
        messages = measure(tmp_path, count, 20, (*SLOW, "1000000"))
    assert messages
    left_out_ns = [[copy.stamps_ns - copy.stated_ns for copy in one] for one in messages]
    assert min(map(min, left_out_ns)) > 0
    # What of the message waits when the last copy is cloned leaves one frame time after another.
    octets = messages[0][0].octets
    waiting = count - BURST / octets
    frame_ns = octets * 8 / BITS_A_NS
    cloned_ns = statistics.median(one[-1].stated_ns - one[0].stated_ns for one in messages)
    expected_ns = waiting * frame_ns - cloned_ns
    assert statistics.median(one[-1] for one in left_out_ns) > 0.8 * expected_ns > 0
    # A busy machine may let the bucket wait, but not for most messages.
    assert statistics.median(one[-1] for one in left_out_ns) < 3 * count * frame_ns


def test_copies_for_which_the_queue_has_no_room_are_counted(tmp_path: Path) -> None:
    count = 100
    with between_namespaces(tmp_path) as at:
        with where_the_kernel_can():
            one = in_the_kernel(tmp_path, at)
        try:
            subscribers = [Sensor(at, f"s{number}", CLIENT_SIDE) for number in range(count)]
            for each in subscribers:
                each.connect().subscribe("room/1")
            publisher = Sensor(at, "publisher", CLIENT_SIDE).connect()
            topic_id = publisher.register("room/1")
            one.is_open(publisher, topic_id, "room/1", *subscribers)
            place = ["tc", "-n", BROKER_SIDE, "qdisc", "add", "dev", "b0", "root"]
            narrow = ("tbf", "rate", "200kbit", "burst", str(BURST), "limit", "3000")
            subprocess.run([*place, *narrow], check=True)
            # One that goes through the broker, as any may, says nothing here.
            for number in range(100):
                before, payload = one.status()["frames"], b"number %d" % number
                slow = one.topic("room/1")["slow"]
                publisher.publish(topic_id, payload)

                def is_seen(before: int = before["hits"], slow: int = slow) -> bool:
                    has_hit = one.status()["frames"]["hits"] > before
                    return has_hit or one.topic("room/1")["slow"] > slow

                until(is_seen, "neither way was taken")
                frames = one.status()["frames"]
                if frames["hits"] > before["hits"]:
                    break

            def counted() -> tuple[int, int]:
                now = one.status()["frames"]
                return now["copies"] - before["copies"], now["refused"] - before.get("refused", 0)

            until(lambda: sum(counted()) == count, "not every copy is counted")
            made, refused = counted()
            assert refused > 0

            def came() -> int:
                for each in subscribers:
                    while each.hear(0):
                        pass
                return sum(("room/1", payload) in each.got for each in subscribers)

            until(lambda: came() == made, "what was not refused does not come")
        finally:
            one.end()
