"""make demo-broker: our broker beside Mosquitto.

Three real clients, whose clocks are simulated, find the time through Mosquitto and then through
mqtick-broker, which says how long each copy was in it. Then the published experiment is measured
through both (real programs; pins and oscilloscope simulated); one report shows both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from demo import sync
from demo.hardware import compare, measure
from demo.local_broker import Mosquitto, MqtickBroker, running

LINES = '[[delivery.topic]]\nfilter = "mqtick/#"\nmode = "ordered"\nresidence = true'


def find_the_time(broker: Mosquitto, folder: Path, seconds: float) -> int:
    """Let three clients find the time through a broker; return the exit code."""
    print(f"\nBroker: {broker.name}. Clients' clocks: simulated. Everything else is real.")
    with running(broker), sync.started(folder, broker, with_chronyd=False) as (clients, _):
        sync.watch(clients, None, seconds)
    return sync.summary(clients, broker.name, folder, keep=False)


def main() -> int:
    """Run the demo; exit code 0 if the clients found the time and both were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="how long to watch (default 20)")
    parser.add_argument("--out", type=Path, help="folder of both runs and their report")
    args = parser.parse_args()
    out = args.out or Path("runs") / time.strftime("broker-%Y%m%d-%H%M%S")
    folder = Path(tempfile.mkdtemp(prefix="mqtick-broker-"))
    os.chmod(folder, 0o755)
    places = [folder / "mosquitto", folder / "mqtick-broker"]
    code = 0
    try:
        for place in places:
            place.mkdir()
        brokers = [Mosquitto(places[0]), MqtickBroker(places[1], LINES)]
        for broker in brokers:
            code = code or find_the_time(broker, broker.folder, args.seconds)
        for broker in brokers:
            code = code or measure(broker, broker.folder, out / broker.folder.name)
        code = code or compare(*(out / place.name for place in places), out=out)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (OSError, RuntimeError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    if code:
        print(f"The logs are in {folder}.", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
