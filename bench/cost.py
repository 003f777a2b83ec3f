"""cost: processor time and memory of a client and of the server.

Every program is the real one, in a process of its own, with its defaults (1 Hz). The 600 clients of
the server are simulated connections that ask as often as real ones would.

    python -m bench.cost              120 s a phase
    python -m bench.cost --short      30 s a phase
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import Report, cpu_ns, options, progress
from demo.local_broker import Mosquitto, running
from demo.local_programs import started, time_client, time_server
from mqtick.service import read_status

_CLIENTS = 600
_SLICES = 12
_WARM_UP_S = 10.0
# By then each client has made one burst, so that its echo is in place.
_WARM_UP_CROWD_S = 25.0
_CLIENT_PERCENT, _CLIENT_MB, _SERVER_PERCENT = 0.5, 40.0, 10.0


def peak_mb(pid: int) -> float:
    """Return the peak resident memory of a process, in MB of 10**6 octets."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"/proc/{pid}/status has no VmHWM; so the memory is not known.")


@dataclass
class Usage:
    """Usage of one program: percent of one core in each slice of time, and memory."""

    percent: list[float] = field(default_factory=list)
    memory_mb: float = 0.0

    @property
    def mean_percent(self) -> float:
        """Mean over the whole time."""
        return sum(self.percent) / len(self.percent)


def watch(pids: Mapping[str, int], seconds: float) -> dict[str, Usage]:
    """Watch processes for a while."""
    found = {who: Usage() for who in pids}
    for number in range(_SLICES):
        progress(f"{', '.join(pids)}: {number + 1} of {_SLICES}")
        began = {who: cpu_ns(pid) for who, pid in pids.items()}
        began_ns = time.monotonic_ns()
        time.sleep(seconds / _SLICES)
        for who, pid in pids.items():
            elapsed_ns = time.monotonic_ns() - began_ns
            found[who].percent.append(100 * (cpu_ns(pid) - began[who]) / elapsed_ns)
    for who, pid in pids.items():
        found[who].memory_mb = peak_mb(pid)
    return found


def _add(report: Report, what: str, who: str, usage: Usage) -> None:
    report.add(f"{what}: processor", "% of a core", who, usage.percent, digits=3)
    report.add(f"{what}: peak memory", "MB", who, [usage.memory_mb], digits=1)


def alone_and_client(report: Report, folder: Path, seconds: float) -> None:
    """Measure a server without requests and, at the same time, a client and a plain subscriber."""
    quiet, busy = folder / "quiet", folder / "busy"
    quiet.mkdir()
    busy.mkdir()
    with (
        running(Mosquitto(quiet)) as other,
        running(Mosquitto(busy)) as broker,
        time_server(other.url, quiet) as lonely,
        time_server(broker.url, busy),
        time_client(broker.url, busy, "bench") as client,
        started(
            "bench.paho_subscriber",
            *("127.0.0.1", str(broker.port), "mqtick/t/0"),
            log=busy / "peer.log",
        ) as peer,
    ):
        time.sleep(_WARM_UP_S)
        pids = {"mqtick-timeserver": lonely.pid, "mqtick-client": client.pid, "paho": peer.pid}
        usage = watch(pids, seconds)
        state = read_status(busy / "bench/status.json").values["state"]
        if state != "synchronised":
            raise RuntimeError(f"the client is {state}: so its cost says nothing")
    ours, plain = usage["mqtick-client"], usage["paho"]
    _add(report, "a client, 1 Hz", "mqtick-client", ours)
    _add(report, "a client, 1 Hz", "plain paho-mqtt subscriber", plain)
    _add(report, "the server, nobody asks", "mqtick-timeserver", usage["mqtick-timeserver"])
    percent, plain_percent = round(ours.mean_percent, 3), round(plain.mean_percent, 3)
    limit_mb, plain_mb = round(ours.memory_mb, 1), round(plain.memory_mb, 1)
    report.compare("a client's processor, % of a core / aim", percent, _CLIENT_PERCENT, 1.0)
    report.compare("a client's peak memory, MB / aim", limit_mb, _CLIENT_MB, 1.0)
    report.compare("a client's processor / plain subscriber", percent, plain_percent)
    report.compare("a client's peak memory / plain subscriber", limit_mb, plain_mb)


def _done(folder: Path) -> tuple[Counter[str], float]:
    """Return the server's counters, and the time (s) at which it wrote them to its status file."""
    status = read_status(folder / "server/status.json")
    written_s = time.clock_gettime(time.CLOCK_BOOTTIME) - status.age_ns / 1e9
    return Counter(status.values["done"]), written_s


def with_crowd(report: Report, folder: Path, seconds: float, clients: int) -> None:
    """Measure the server while many clients ask at the default rate."""
    folder.mkdir()
    result = folder / "crowd.json"
    with running(Mosquitto(folder)) as broker, time_server(broker.url, folder) as server:
        time.sleep(3)
        arguments = (str(broker.port), str(clients), str(result))
        with started("bench.crowd", *arguments, log=folder / "crowd.log"):
            time.sleep(_WARM_UP_CROWD_S)
            before, began_s = _done(folder)
            usage = watch({"mqtick-timeserver": server.pid}, seconds)["mqtick-timeserver"]
            after, ended_s = _done(folder)
        time.sleep(1)
    counts = json.loads(result.read_text())
    what = f"the server, {clients} clients ask"
    _add(report, what, "mqtick-timeserver", usage)
    for name in ("replies", "echoes"):
        rate = (after[name] - before[name]) / (ended_s - began_s)
        report.add(f"{what}: {name}", "per s", "mqtick-timeserver", [rate])
    lost = 100 * (1 - counts["answered"] / counts["asked"])
    report.add(f"{what}: unanswered", "%", "mqtick-timeserver", [lost], digits=3)
    percent = round(usage.mean_percent, 3)
    quantity = f"the server's processor with {clients} clients, % of a core / aim"
    report.compare(quantity, percent, _SERVER_PERCENT, 1.0)


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"seconds": 30.0}, seconds=120.0, clients=_CLIENTS)
    report = Report("cost")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone_and_client(report, folder, args.seconds)
        with_crowd(report, folder / "crowd", args.seconds, args.clients)
    report.finish()


if __name__ == "__main__":
    main()
