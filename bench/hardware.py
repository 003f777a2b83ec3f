"""hardware: the hardware broker's RTL in simulated time, exact to its cycle of 6.4 ns.

Everything is simulated: `make model-rtl` builds the program that runs the design. Latency is
measured at the UDP boundary with an outer core that takes a word in every cycle, the rest with its
link at 10 Gb/s.

    python -m bench.hardware            10^6 messages at the line rate
    python -m bench.hardware --short    10^4
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Report, options, progress
from mqtick.lab.hardware.copies import PUBLISHER, measure, subscriber, subscriptions
from mqtick.lab.hardware.datagrams import CYCLE_FS, Datagram, frame_octets, publish
from mqtick.lab.hardware.program import ModelError, count_batch, find_model, run_batch

_WHO = "mqtick broker, RTL"
_NS = CYCLE_FS / 1e6
_PREFIX, _SHORT_PREFIX = "mqtick", "m"
_PUBLISHED_NS, _GOAL_NS = 799.2, 200.0
_LIMIT_US = 52.0
_TOPIC = "a/b/c/d/e"
_PAYLOAD = b"12345"
"""With that topic the datagram has 18 octets: a minimum frame, 67.2 ns at 10 Gb/s."""
_LINE_RATE = 10.5
"""Cycles from one minimum frame to the next."""
_SHAPES = (1, 2, 4, 6, 8)
_LINE_RATE_M = 156.25 / _LINE_RATE


def words(octets: int) -> int:
    """Return how many 64-bit words a payload takes."""
    return -(-octets // 8)


def filters(shapes: int) -> dict[str, str]:
    """Return filters of that many shapes by subscriber; only the first one matches the topic."""
    wanted = [_TOPIC]
    for plus in range(1, min(shapes, 31)):
        wanted.append("/".join("+" if plus >> level & 1 else "q" for level in range(5)))
    wanted += ["q/#"] * (shapes - len(wanted))
    return {subscriber(number): each for number, each in enumerate(wanted, start=1)}


def latencies_ns(model: Path, shapes: int, messages: int) -> list[float]:
    """Return the times from the last word of a message to the first word of its copy."""
    come, at = subscriptions(filters(shapes))
    octets = publish(_TOPIC, _PAYLOAD)
    draw = random.Random(1)
    sent = [Datagram(at + i * 500 + draw.randrange(64), PUBLISHER, octets) for i in range(messages)]
    copies = [
        each for each in run_batch(model, [*come, *sent], link_gbps=0) if each.octets == octets
    ]
    if len(copies) != messages:
        raise ModelError(f"{messages} messages became {len(copies)} copies.")
    last = words(len(octets)) - 1
    return [(copy.cycle - one.cycle - last) * _NS for one, copy in zip(sent, copies, strict=True)]


def at_line_rate(shapes: int, messages: int) -> Iterator[Datagram]:
    """Yield subscriptions of that many shapes, then minimum frames without a gap."""
    come, at = subscriptions(filters(shapes))
    yield from come
    octets = publish(_TOPIC, _PAYLOAD)
    for number in range(messages):
        yield Datagram(at + int(number * _LINE_RATE), PUBLISHER, octets)


def lost(model: Path, shapes: int, messages: int) -> int:
    """Return how many messages were lost at the line rate."""
    # For each subscriber, a challenge and a SUBACK are sent besides the copies.
    expected = messages + 2 * shapes
    counts = count_batch(model, at_line_rate(shapes, messages), link_gbps=10)
    return max(expected - counts["sent"], counts["lost"])


def spread_us(model: Path, prefix: str, shots: int, version: int) -> tuple[list[float], float]:
    """Return the times from first to last of 600, us, and the time of a frame on the wire, ns."""
    found = measure(model, 600, shots, link_gbps=10, prefix=prefix, seed=1, version=version)
    frame_ns = round(frame_octets(len(found[0].message.octets)) * 0.8, 3)
    return [one.spread * _NS / 1000 for one in found], frame_ns


def run(report: Report, model: Path, messages: int, shots: int) -> None:
    """Measure everything."""
    for shapes in (1, 8):
        progress(f"latency, {shapes} shapes")
        row = report.add(
            f"last word in to first word of the first copy, {shapes} of 8 shapes in use",
            "ns",
            _WHO,
            latencies_ns(model, shapes, 10 * shots),
        )
        report.compare(f"{shapes} shapes: latency, max / goal, ns", row.max, _GOAL_NS, 1.0)
        report.compare(
            f"{shapes} shapes: latency, max / whole published broker, ns", row.max, _PUBLISHED_NS
        )
    for name, prefix, version, goal in (
        ("version 1, topic m/t/0", _SHORT_PREFIX, 1, 1.0),
        ("version 1, topic mqtick/t/0", _PREFIX, 1, None),
        ("version 2, topic mqtick/t/0", _PREFIX, 2, None),
    ):
        progress(f"600 subscribers, {name}")
        values, frame_ns = spread_us(model, prefix, shots, version)
        row = report.add(f"first to last of 600, {name}", "us", _WHO, values, digits=3)
        report.compare(f"{row.quantity} / 52 us", row.max, _LIMIT_US, goal)
        slope = round(1000 * row.median / 599, 3)
        report.compare(f"{name}: slope of skew / wire's time of a frame, ns", slope, frame_ns, 1.0)
    for shapes in _SHAPES:
        progress(f"line rate, {shapes} of 8 shapes")
        share = 1 - lost(model, shapes, messages) / messages
        what = f"sustained of {_LINE_RATE_M:.2f} M/s (10 Gb/s), {shapes} of 8 shapes in use"
        row = report.add(what, "M/s", _WHO, [_LINE_RATE_M * share], digits=3)
        report.compare(
            f"line rate / sustained, {shapes} shapes", round(_LINE_RATE_M, 3), row.median, 1.0
        )


def main() -> int:
    """Run the benchmark."""
    args = options(
        __doc__,
        short={"messages": 10_000, "shots": 4},
        messages=1_000_000,
        shots=20,
        model="",
    )
    report = Report("hardware", simulated=True)
    try:
        run(report, find_model(args.model), args.messages, args.shots)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
