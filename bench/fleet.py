"""fleet: from blank hosts to one time, and what it costs a host from then on.

Four blank Debian hosts (systemd-nspawn: real systemd, ssh, chrony; no Internet), as `make
fleet-test` has them: h1 broker and client, h2 time server, h3 and h4 clients. All share this
machine's processors and its kernel's clock, so the clients' clocks are virtual, and chronyd runs
with -x. Measured are

- the time of the playbook `site`, task by task, and until the last client is synchronised;
- an otherwise idle client host: processor time and memory, next to its chronyd's.

    python -m bench.fleet                3 fleets, 10 minutes idle
    python -m bench.fleet --short        1 fleet, 1 minute
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.harness import Report, Row, options, progress
from demo.local_programs import wait_until

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "ansible" / "tests"))

from fleet import Fleet, is_right, look, ntp_server, wheelhouse  # noqa: E402
from hosts import Host, Rig  # noqa: E402
from machine import what_is_missing  # noqa: E402

_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(.+)\] \*+$")
_PLAY = re.compile(r"^PLAY \[(.+)\] \*+$")
_MB = 1e6


class Stopwatch:
    """Reads the output of ansible-playbook, and notes when each task began."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = defaultdict(float)
        self._task, self._since_s = "start", time.monotonic()

    def read(self, line: str) -> None:
        """Take one line of its output."""
        if found := _TASK.match(line) or _PLAY.match(line):
            self.end()
            self._task = found[1]
            progress(found[1])

    def end(self) -> None:
        """Note that the running task has ended."""
        now_s = time.monotonic()
        self.spent_s[self._task] += now_s - self._since_s
        self._since_s = now_s


def until_synchronised(hosts: list[Host]) -> None:
    """Wait until each host is synchronised, and the truth lies within its stated bound."""
    for host in hosts:
        wait_until(lambda host=host: is_right(look(host)), host.name, 180)  # type: ignore[misc]


def provisioned(fleet: Fleet) -> tuple[float, Stopwatch]:
    """Run `site` on blank hosts; return the minutes until all are synchronised, and the tasks."""
    watch = Stopwatch()
    began_s = time.monotonic()
    fleet.play("site", on_line=watch.read)
    watch.end()
    until_synchronised(fleet.clients)
    return (time.monotonic() - began_s) / 60, watch


def processor_ns(host: Host, unit: str) -> int:
    """Return the processor time that a running unit has used so far, ns."""
    return int(host.run(f"systemctl show --value -p CPUUsageNSec {unit}"))


def memory_mb(host: Host, unit: str) -> float:
    """Return the memory of a unit's processes, MB: each shared page in proportion (PSS)."""
    folder = host.run(f"systemctl show --value -p ControlGroup {unit}").strip()
    pids = host.run(
        f"cat $(find /sys/fs/cgroup{folder} /sys/fs/cgroup/unified{folder}"
        " -name cgroup.procs 2>/dev/null)"
    ).split()
    files = " ".join(f"/proc/{pid}/smaps_rollup" for pid in pids)
    return sum(map(int, host.run(f"awk '/^Pss:/ {{print $2}}' {files}").split())) * 1024 / _MB


def whole_host_ns(host: Host) -> int:
    """Return the processor time of all processes on a host, ns."""
    (usage_us,) = re.findall(r"^usage_usec (\d+)", (host.cgroup / "cpu.stat").read_text(), re.M)
    return int(usage_us) * 1000


def idle(host: Host, seconds: float) -> dict[str, tuple[float, float]]:
    """Return, by who, the share of one processor in percent and the memory in MB."""
    units = {"mqtick-client": "mqtick-client.service", "chronyd": "chrony.service"}
    began_s = time.monotonic()
    before = {who: processor_ns(host, unit) for who, unit in units.items()}
    whole = whole_host_ns(host)
    while (left_s := began_s + seconds - time.monotonic()) > 0:
        progress(f"idle: {left_s:.0f} s left")
        time.sleep(min(left_s, 5))
    whole = whole_host_ns(host) - whole
    used = {who: processor_ns(host, unit) - before[who] for who, unit in units.items()}
    span_ns = (time.monotonic() - began_s) * 1e9
    found = {
        who: (100 * used_ns / span_ns, memory_mb(host, units[who])) for who, used_ns in used.items()
    }
    every = host.run("cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ {print $2}'")
    found["the whole host"] = (100 * whole / span_ns, sum(map(int, every.split())) * 1024 / _MB)
    return found


def main() -> None:
    """Measure and report."""
    args = options(__doc__, {"fleets": 1}, fleets=3)
    if missing := what_is_missing():
        raise SystemExit(f"fleet: not measured: {missing}")
    rounds, idle_s = max(1, args.fleets), 60.0 if args.short else 600.0
    report = Report("fleet")
    now = wheelhouse("bookworm")
    minutes: list[float] = []
    tasks: dict[str, list[float]] = defaultdict(list)
    for left in reversed(range(rounds)):
        with (
            tempfile.TemporaryDirectory() as folder,
            Rig("bench", 79, ["h1", "h2", "h3", "h4"]) as rig,
            ntp_server(rig, Path(folder)),
        ):
            fleet = Fleet(Path(folder), rig)
            fleet.install_collection()
            fleet.use_wheelhouse(now)
            took, watch = provisioned(fleet)
            minutes.append(took)
            for task, spent_s in watch.spent_s.items():
                tasks[task].append(spent_s)
            if not left:
                live(report, fleet, idle_s)
    who = "site"
    report.rows.insert(0, Row.of("4 blank hosts to synchronised", "min", who, minutes))
    slowest = sorted(tasks.items(), key=lambda item: -max(item[1]))
    for task, spent in slowest[:12]:
        report.add(f"task: {task}", "s", who, spent)
    rest = [sum(spent[k] for _, spent in slowest[12:] if len(spent) > k) for k in range(rounds)]
    report.add(f"the other {len(slowest[12:])} tasks together", "s", who, rest)
    report.finish()


def live(report: Report, fleet: Fleet, idle_s: float) -> None:
    """Measure an idle host of a running fleet."""
    found = idle(fleet.rig.host("h3"), idle_s)
    for who, (percent, memory) in found.items():
        text = f"idle client host, {idle_s / 60:g} min"
        report.add(f"{text}: processor", "% of one", who, [percent], digits=3)
        report.add(f"{text}: memory (PSS)", "MB", who, [memory])
    for which, quantity in enumerate(("processor time", "memory")):
        ours, peer = (round(found[who][which], 3) for who in ("mqtick-client", "chronyd"))
        report.compare(f"idle: {quantity}, client / chronyd", ours, peer)


if __name__ == "__main__":
    main()
