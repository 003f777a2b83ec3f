"""make demo-broker: our broker beside Mosquitto.

Three real clients, whose clocks are simulated, find the time through Mosquitto and then through
mqtick-broker, which says how long each copy was in it. Then the published experiment is measured
through both (real programs; pins and oscilloscope simulated). One report shows both, and the last
lines their time error and skew beside each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from demo import sync
from demo.hardware import measure
from demo.local_broker import Mosquitto, MqtickBroker, running
from demo.simulated_bench import SHOTS
from demo.stage import compare, play

LINES = '[[delivery.topic]]\nfilter = "mqtick/#"\nmode = "ordered"\nresidence = true'


def find_the_time(broker: Mosquitto, folder: Path, seconds: float) -> tuple[int, float]:
    """Let three clients find the time through a broker; return the exit code and the worst error.

    The error is in us, of any of them, without its sign.
    """
    print(
        f"\nThree clients find the time through {broker.name}, {seconds:g} s."
        " Their clocks are simulated, everything else is real."
    )
    with running(broker), sync.started(folder, broker, with_chronyd=False) as (clients, _):
        sync.watch(clients, None, seconds)
    worst_us = max(abs(client.true_error_ns or 0) for client in clients) / 1000
    return sync.summary(clients, broker.name), worst_us


def beside(errors_us: dict[str, float], report: Path) -> str:
    """Return what was measured of each broker, a line each, from the report of both runs."""
    results = json.loads(report.read_text())["results"]
    lines = [("simulated clocks and pins", "worst time error", "median |skew|, N = 100", "p95")]
    for (name, error_us), result in zip(errors_us.items(), results, strict=True):
        (skew,) = [one for one in result["quantities"] if one["quantity"] == "skew"]
        found = skew["rows"][-1]["absolute"]
        median, p95 = (f"{found[column]['value']:.0f} us" for column in ("median_us", "p95_us"))
        lines.append((name, f"{error_us:.1f} us", median, p95))
    return "\n".join(f"{a:26}{b:>16}{c:>24}{d:>10}" for a, b, c, d in lines)


def show(folder: Path, seconds: float, shots: int, out: Path) -> int:
    """Run both parts through both brokers; return the exit code."""
    places = [folder / "mosquitto", folder / "mqtick-broker"]
    for place in places:
        place.mkdir()
    brokers = [Mosquitto(places[0]), MqtickBroker(places[1], LINES)]
    print("Both brokers in turn, four minutes in all: first the time, then the skew.")
    code, errors_us = 0, {}
    for broker in brokers:
        failed, errors_us[broker.name] = find_the_time(broker, broker.folder, seconds)
        code = code or failed
    for broker in brokers:
        code = code or measure(broker, broker.folder, out / broker.folder.name, shots)
    code = code or compare(*(out / place.name for place in places), out=out)
    if not code:
        print(f"\n{beside(errors_us, out / 'report' / 'report.json')}")
        print("Programs that share few cores wait for each other: `make bench-brokers` is finer.")
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 0 if the clients found the time and both were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="how long to watch (default 20)")
    parser.add_argument("--shots", type=int, default=SHOTS, help=f"of each N (default {SHOTS})")
    parser.add_argument("--out", type=Path, help="folder of both runs and their report")
    args = parser.parse_args(arguments)
    out = args.out or Path("runs") / time.strftime("broker-%Y%m%d-%H%M%S")
    return play("broker", lambda folder: show(folder, args.seconds, args.shots, out))


if __name__ == "__main__":
    sys.exit(main())
