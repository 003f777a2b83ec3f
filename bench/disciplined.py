"""disciplined: how good is the clock that chronyd steers, which is the clock of the user?

There are a time server on a virtual clock (offset, frequency error and wander: simulated), a real
mqtick-client, and a real chronyd that steers CLOCK_REALTIME of this machine by the client's
samples. The truth is the virtual clock's time, computed from CLOCK_MONOTONIC_RAW, which is never
steered. Then the same with a virtual clock of the same kind, and exact samples at the same instants
in place of the client's. That is the floor: chronyd with perfect samples.

No other program may move this machine's clock meanwhile, and no program may run that needs a clock
better than some milliseconds. The clock is put back after each part, also after Ctrl-C.

    python -m bench.disciplined                   each: 5 minutes to settle, 10 minutes measured
    python -m bench.disciplined --short           1 minute and 1 minute
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.clock_keeper import may_set_the_clock, other_daemons
from bench.harness import Report, Row, options, progress
from bench.steered import Chronyd, Taken, generated_lines, steering
from demo.local_broker import Mosquitto, running
from demo.local_programs import time_client, time_server
from mqtick.client.chrony import ChronySock, layout_for
from mqtick.client.interval import NowError, now_from
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings, read_kernel_time
from mqtick.service import StatusError, chronyd, read_status

_US, _SECOND = 1000, 1_000_000_000
_LOOK_S = 0.1
GOAL = 2.0
OURS, FLOOR = "mqtick-client", "exact samples at the same instants (floor)"


class Look(NamedTuple):
    """One observation of the steered clock; errors are *observed minus truth*, ns."""

    elapsed_ns: int
    realtime_ns: int
    clock_ns: int
    stated: tuple[int, int, int] | None = None
    """The client's statement at that moment: estimate, earliest, latest."""
    assumed: tuple[int, int] | None = None
    """The narrower interval that rests on assumptions: earliest, latest; None: no narrower."""

    @property
    def truth_is_outside(self) -> bool:
        """Whether the stated interval does not contain the truth; also if none is stated."""
        return self.stated is None or not self.stated[1] <= 0 <= self.stated[2]

    @property
    def truth_is_outside_assumed(self) -> bool:
        """Whether the narrower interval (or the other, if there is none) is wrong."""
        if self.assumed is None:
            return self.truth_is_outside
        return not self.assumed[0] <= 0 <= self.assumed[1]

    @property
    def clock_is_outside(self) -> bool:
        """Whether the steered clock lies outside the stated interval."""
        return self.stated is None or not self.stated[1] <= self.clock_ns <= self.stated[2]


def look(truth: VirtualClock, status: Path | None) -> Look:
    """Observe the clock, and the client's statement about it."""
    try:
        now = now_from(read_status(status)) if status is not None else None
    except (NowError, StatusError):
        now = None
    kernel = read_kernel_time(10)
    clock_ns = kernel.realtime_ns - truth.at_monotonic_raw_ns(kernel.raw_ns)
    elapsed_ns = kernel.raw_ns - truth.settings.epoch_raw_ns
    if now is None:
        return Look(elapsed_ns, kernel.realtime_ns, clock_ns)
    # Shift by the clock, which ran like the truth between the two readings.
    shift_ns = clock_ns - now.clock_ns
    stated = now.estimate_ns + shift_ns, now.earliest_ns + shift_ns, now.latest_ns + shift_ns
    assumed = None
    if now.narrow_earliest_ns is not None and now.narrow_latest_ns is not None:
        assumed = now.narrow_earliest_ns + shift_ns, now.narrow_latest_ns + shift_ns
    return Look(elapsed_ns, kernel.realtime_ns, clock_ns, stated, assumed)


def virtual_clock(args: argparse.Namespace) -> VirtualClockSettings:
    """Return the server's clock, which begins now."""
    return VirtualClockSettings.starting_now(
        offset_ns=round(args.offset_ms * 1e6),
        frequency_ppb=args.frequency_ppm * 1e3,
        wander_ppb=args.wander_ppb,
        seed=args.seed,
    )


def watch(
    who: str,
    daemon: Chronyd,
    truth: VirtualClock,
    args: argparse.Namespace,
    *,
    status: Path | None = None,
    meanwhile: Callable[[int], None] = lambda _elapsed_ns: None,
) -> list[Look]:
    """Observe ten times a second, until both times (to settle and to measure) are over."""
    looks: list[Look] = []
    begun = time.monotonic()
    while (elapsed := time.monotonic() - begun) < args.warm_up_s + args.seconds:
        if daemon.process.poll() is not None:
            raise RuntimeError(f"chronyd ended:\n{daemon.log.read_text()}")
        looks.append(look(truth, status))
        meanwhile(looks[-1].elapsed_ns)
        if len(looks) % 10 == 0:
            left_s = args.warm_up_s + args.seconds - elapsed
            progress(f"{who}: {left_s:4.0f} s left, {looks[-1].clock_ns / _US:+.1f} us off")
        time.sleep(max(0.0, begun + len(looks) * _LOOK_S - time.monotonic()))
    return looks


def with_client(folder: Path, args: argparse.Namespace) -> tuple[list[Look], list[Taken]]:
    """Let a client's measurements steer the clock."""
    folder.mkdir()
    lines = generated_lines(folder / "chronyd")
    print(*lines, sep="\n", flush=True)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(folder)))
        daemon = stack.enter_context(steering(folder / "chronyd", lines))
        served = virtual_clock(args)
        stack.enter_context(time_server(broker.url, folder, "--virtual-clock", served.to_text()))
        flags = ("--discipline", "chrony", "--chrony-check-interval-s", "0")
        socket = ("--chrony-socket", f"{folder}/chronyd/chrony.mqtick{{server}}.sock")
        stack.enter_context(time_client(broker.url, folder, "c1", *flags, *socket))
        truth = VirtualClock(served)
        looks = watch(OURS, daemon, truth, args, status=folder / "c1/status.json")
        return looks, daemon.taken()


def with_exact_samples(
    folder: Path, args: argparse.Namespace, at_ns: Sequence[int]
) -> tuple[list[Look], list[Taken]]:
    """Let exact samples steer the clock, given at these times since the virtual clock's epoch."""
    folder.mkdir()
    waiting = sorted(at_ns, reverse=True)
    with steering(folder / "chronyd", generated_lines(folder / "chronyd")) as daemon:
        sock = ChronySock(daemon.socket, layout_for(chronyd.version()))
        truth = VirtualClock(virtual_clock(args))

        def feed(elapsed_ns: int) -> None:
            if waiting and waiting[-1] <= elapsed_ns:
                while waiting and waiting[-1] <= elapsed_ns:
                    waiting.pop()
                now = read_kernel_time(10)
                sock.send(now.realtime_ns, truth.at_monotonic_raw_ns(now.raw_ns) - now.realtime_ns)

        looks = watch(FLOOR, daemon, truth, args, meanwhile=feed)
        sock.close()
        return looks, daemon.taken()


def placed(looks: Sequence[Look], taken: Sequence[Taken]) -> Iterator[tuple[int, int]]:
    """Yield for each sample when it was taken, since the epoch, and its error, ns."""
    index = 0
    for sample in taken:
        while index < len(looks) - 1 and looks[index].realtime_ns < sample.realtime_ns:
            index += 1
        near = looks[index]
        since_ns = sample.realtime_ns - near.realtime_ns
        yield near.elapsed_ns + since_ns, sample.offset_ns + near.clock_ns


def measured(looks: Sequence[Look], args: argparse.Namespace) -> list[Look]:
    """Return the observations after the time to settle."""
    return [each for each in looks if each.elapsed_ns - looks[0].elapsed_ns > args.warm_up_s * 1e9]


def summarise(
    report: Report,
    ours: Sequence[Look],
    floor: Sequence[Look],
    samples: dict[str, list[float]],
) -> None:
    """Add the rows."""

    def add(quantity: str, who: str, values: list[float]) -> Row:
        return report.add(quantity, "us", who, values)

    steered = "|steered clock - truth|"
    stated = [each.stated for each in ours if each.stated is not None]
    mine = add(steered, OURS, [abs(each.clock_ns) / _US for each in ours])
    theirs = add(steered, FLOOR, [abs(each.clock_ns) / _US for each in floor])
    add("|the client's estimate - truth|", OURS, [abs(each[0]) / _US for each in stated])
    add("half the stated interval", OURS, [(each[2] - each[1]) / 2 / _US for each in stated])
    assumed = [(each.assumed[1] - each.assumed[0]) / 2 / _US for each in ours if each.assumed]
    if assumed:
        add("half the assumed, narrower interval", OURS, assumed)
    for who, errors in samples.items():
        add("|error| of one sample given to chronyd", who, errors)
    for name in ("median", "p99", "max"):
        report.compare(f"{steered}, {name}", getattr(mine, name), getattr(theirs, name), GOAL)
    for what, outside in (
        ("the truth outside the stated", [each.truth_is_outside for each in ours]),
        ("the truth outside the assumed", [each.truth_is_outside_assumed for each in ours]),
        ("the steered clock outside the stated", [each.clock_is_outside for each in ours]),
    ):
        report.compare(f"looks with {what} interval", sum(outside), len(ours), 0.0)


def measure(args: argparse.Namespace) -> Report:
    """Run both parts."""
    report = Report("disciplined", simulated=True)
    with tempfile.TemporaryDirectory(prefix="mqtick-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the broker may run as another user
        ours, taken = with_client(folder / "client", args)
        errors = list(placed(ours, taken))
        floor, exact = with_exact_samples(folder / "exact", args, [at_ns for at_ns, _ in errors])
    samples = {
        who: [abs(error_ns) / _US for at_ns, error_ns in found if at_ns > args.warm_up_s * 1e9]
        for who, found in ((OURS, errors), (FLOOR, placed(floor, exact)))
    }
    summarise(report, measured(ours, args), measured(floor, args), samples)
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(
        __doc__,
        {"warm_up_s": 60.0, "seconds": 60.0},
        warm_up_s=300.0,
        seconds=600.0,
        offset_ms=2.0,
        frequency_ppm=20.0,
        wander_ppb=10.0,
        seed=1,
    )
    if not may_set_the_clock():
        raise SystemExit("no right to set the clock of this machine (CAP_SYS_TIME): run it as root")
    if daemons := other_daemons():
        raise SystemExit(f"{', '.join(daemons)} steers this clock already: stop it first.")
    measure(args).finish()


if __name__ == "__main__":
    main()
