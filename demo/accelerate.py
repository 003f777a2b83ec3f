"""make demo-accelerate: one publisher, 100 subscribers, through the broker and past it.

Real programs, between two network namespaces of this machine; delays are by the kernel's stamps.
Those of the first and the last subscriber are written down as signals, of which mqtick-report
makes a report: latency and skew with the broker alone beside those past it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import struct
import sys
import time
from pathlib import Path

from demo.local_sensors import CLIENT_SIDE, Sensor, between_namespaces, in_the_kernel, until
from demo.stage import compare, play

TOPIC = "demo/time"
STAMPS = 35  # SO_TIMESTAMPNS, which Python's socket does not name
GAP_S = 0.02


def stamped(sensor: Sensor) -> tuple[int, int] | None:
    """The next copy: the message's number, and when it came, ns; None: there is none."""
    try:
        datagram, notes, _, _ = sensor.socket.recvmsg(64, 64, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    if datagram[1] != 0x0C:
        return -1, 0
    seconds, rest = struct.unpack("=qq", notes[0][2][:16])
    return struct.unpack("!I", datagram[7:11])[0], seconds * 10**9 + rest


def write_signals(file: Path, instants: list[tuple[int, ...]]) -> None:
    """Write a VCD: publisher, first and last rise at these instants, ns, of each message."""
    names = dict(zip("pfl", ("publisher", "first", "last"), strict=True))
    lines = ["$timescale 1 ns $end", "$scope module demo $end"]
    lines += [f"$var wire 1 {sign} {name} $end" for sign, name in names.items()]
    lines += ["$upscope $end", "$enddefinitions $end", "#0", *(f"0{sign}" for sign in names)]
    start_ns, fall_ns = instants[0][0] - 1000, round(GAP_S / 2 * 1e9)
    changes = [
        (at_ns - start_ns + after_ns, f"{level}{sign}")
        for one in instants
        for sign, at_ns in zip(names, one, strict=True)
        for level, after_ns in ((1, 0), (0, fall_ns))
    ]
    lines += [f"#{at_ns}\n{change}" for at_ns, change in sorted(changes)]
    file.write_text("\n".join(lines) + "\n")


def measure(
    publisher: Sensor, topic_id: int, subscribers: list[Sensor], messages: int, signals: Path
) -> dict[str, float]:
    """Publish, and say how late and how far apart the copies came, us."""
    first, last, skew, lost = [], [], [], 0
    instants: list[tuple[int, ...]] = []
    for number in range(1, messages + 1):
        sent_ns = time.time_ns()
        publisher.publish(topic_id, struct.pack("!I", number) + bytes(96))
        time.sleep(GAP_S)
        stamps = {}
        for place, subscriber in enumerate(subscribers):
            while found := stamped(subscriber):
                if found[0] == number:
                    stamps[place] = found[1]
        came = [(stamp_ns - sent_ns) / 1000 for stamp_ns in stamps.values()]
        lost += len(subscribers) - len(came)
        if {0, len(subscribers) - 1} <= stamps.keys():
            instants.append((sent_ns, stamps[0], stamps[len(subscribers) - 1]))
        if came:
            first.append(min(came))
            last.append(max(came))
            skew.append(max(came) - min(came))
    if not instants:
        raise RuntimeError("no copy came")
    write_signals(signals, instants)
    return {
        "first copy, median": statistics.median(first),
        "first copy, p99": statistics.quantiles(first, n=100)[98],
        "last copy, median": statistics.median(last),
        "first to last, median": statistics.median(skew),
        "first to last, p99": statistics.quantiles(skew, n=100)[98],
        "copies that did not come": lost,
    }


def run(
    folder: Path, count: int, messages: int, signals: Path, *, accelerated: bool
) -> dict[str, float]:
    """Start everything, and measure."""
    with contextlib.ExitStack() as open_ones:
        at = open_ones.enter_context(between_namespaces(folder))
        one = in_the_kernel(folder, at, TOPIC if accelerated else "nothing")
        open_ones.callback(one.end)
        subscribers = [Sensor(at, f"subscriber-{number}", CLIENT_SIDE) for number in range(count)]
        # In the order in which mqtick-accelerate copies, so that the first is the first for both.
        subscribers.sort(key=lambda one: one.socket.getsockname())
        for subscriber in subscribers:
            subscriber.connect().subscribe(TOPIC)
        publisher = Sensor(at, "publisher", CLIENT_SIDE).connect()
        topic_id = publisher.register(TOPIC)
        if accelerated:
            one.is_open(publisher, topic_id, TOPIC, *subscribers)
        else:
            publisher.publish(topic_id, bytes(4))

            def all_have_one() -> bool:
                for subscriber in subscribers:
                    subscriber.hear(0.01)
                return all(subscriber.got for subscriber in subscribers)

            until(all_have_one, "not everybody gets messages")
        for subscriber in subscribers:
            while subscriber.hear(0):
                pass
            subscriber.socket.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
        found = measure(publisher, topic_id, subscribers, messages, signals)
        if accelerated:
            status = one.topic(TOPIC)
            print(
                f"{one.plane.strip()}: it copied {status['fast']} messages; {status['slow']} went"
                " through the broker, before it was sure who gets them.\n"
            )
        return found


def show(folder: Path, subscribers: int, messages: int, out: Path) -> int:
    """Measure both ways and report them; return the exit code."""
    out.mkdir(parents=True)
    found, signals = [], []
    for accelerated in (False, True):
        way = "past the broker" if accelerated else "through the broker"
        print(f"{messages} messages to {subscribers} subscribers, {way}", flush=True)
        place = folder / way.replace(" ", "-")
        place.mkdir()
        signals.append(out / f"{place.name}.vcd")
        found.append(run(place, subscribers, messages, signals[-1], accelerated=accelerated))
    print(
        f"{subscribers} subscribers, {messages} messages of 107 octets, one each"
        f" {GAP_S * 1000:.0f} ms; us after the publisher's send, kernel's stamps."
    )
    print(f"{'':24} {'mqtick-broker':>14} {'accelerated':>14} {'ratio':>7}")
    for name, without in found[0].items():
        with_it = found[1][name]
        ratio = f"{with_it / without:7.2f}" if without else ""
        print(f"{name:24} {without:14.0f} {with_it:14.0f} {ratio}")
    if code := compare(*signals, out=out):
        return code
    return 1 if any(one["copies that did not come"] for one in found) else 0


def main() -> int:
    """Run the demo; exit code 0 if no copy was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subscribers", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--messages", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--out", type=Path, help="folder of the stamps and the report")
    args = parser.parse_args()
    out = args.out or Path("runs") / time.strftime("accelerate-%Y%m%d-%H%M%S")
    if os.geteuid() != 0:
        print("error: network namespaces need root: run it with sudo.", file=sys.stderr)
        return 2
    return play("accelerate", lambda folder: show(folder, args.subscribers, args.messages, out))


if __name__ == "__main__":
    sys.exit(main())
