"""A real chronyd steers the clock of this machine over MQTT, and it is put back afterwards.

Runs only with MQTICK_STEER_CLOCK=1 and the right to set the clock, last and alone: a step of the
clock upsets every other test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import US, Program, Rig, Server

from bench.clock_keeper import (
    ADJ_FREQUENCY,
    ADJ_NANO,
    ADJ_SETOFFSET,
    ClockKeeper,
    Keeper,
    adjtimex,
    frequency,
    is_running,
    may_set_the_clock,
    other_daemons,
)
from bench.steered import generated_lines
from broker.tests.harness.sites import JOIN, Site
from broker.tests.harness.timing import NOT_STATED, TOPIC, Node, payload, relayed, until_stated
from demo.local_broker import Mosquitto, running
from demo.local_programs import Chronyd
from mqtick.client.interval import NowError, now_from
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings, read_kernel_time
from mqtick.service import StatusError, chronyd, read_status

LIMIT_NS = 50 * US
HELD_S = 15
"""For so long at the end the clock has to be within the limit without a break."""
PATIENCE_S = 80
STEP_NS = 100_000_000
HERE = Path(__file__).parent
SOCK_SAMPLE = struct.Struct("@qqdiiii")  # struct sock_sample of chrony, 64 bits


pytestmark = [
    pytest.mark.steers_clock,
    pytest.mark.needs("mosquitto"),
    pytest.mark.skipif(
        os.environ.get("MQTICK_STEER_CLOCK") != "1",
        reason="it moves the clock of this machine: only with MQTICK_STEER_CLOCK=1",
    ),
    pytest.mark.skipif(not may_set_the_clock(), reason="no right to set the clock (CAP_SYS_TIME)"),
    pytest.mark.needs("chronyd"),
]


@pytest.fixture
def clock_keeper() -> Iterator[ClockKeeper]:
    if daemons := other_daemons():
        pytest.skip(f"{', '.join(daemons)} steers this clock already: stop it for this test")
    keeper = ClockKeeper()
    try:
        yield keeper
    finally:
        print(keeper.put_back())


def test_chronyd_steers_this_clock_to_a_server_5_ms_and_20_ppm_away(
    rig: Rig, clock_keeper: ClockKeeper
) -> None:
    began = time.monotonic()
    before_ppm = frequency(adjtimex()) * 1e6
    served = VirtualClockSettings.starting_now(offset_ns=5_000_000, frequency_ppb=20_000.0)
    truth = VirtualClock(served)
    broker = rig.broker()
    server = rig.server(
        broker.url,
        *("--virtual-clock", served.to_text(), "--client-requests-per-s", "20"),
    )
    server.wait_ready()
    folder = rig.new_folder("chronyd")
    lines = generated_lines(folder, "--poll", "0")
    daemon = Chronyd(folder, [*lines, "makestep 0.001 3"], steers=True)
    clock_keeper.end_first(daemon.process.pid)
    rig.on_close(daemon.process.wait)
    client = Program(
        rig.new_folder("client"),
        "mqtick-client",
        *("--broker", broker.url, "--name", "c1", "--fast", "--discipline", "chrony"),
        *("--exchange-interval-s", "0.25", "--exchange-burst", "2"),
        *("--chrony-socket", f"{folder}/chrony.mqtick{{server}}.sock"),
        *("--chrony-host", daemon.command_socket, "--chrony-check-interval-s", "1"),
    )
    rig.on_close(client.stop)
    client.start()

    def error_ns() -> int:
        """The clock of this machine minus the server's."""
        now = read_kernel_time(10)
        return now.realtime_ns - truth.at_monotonic_raw_ns(now.raw_ns)

    assert abs(error_ns() + 5_000_000) < 500_000, "it starts where it should"
    errors: list[tuple[float, int]] = []
    outside_s = time.monotonic()
    while (now_s := time.monotonic()) - outside_s < HELD_S:
        assert daemon.process.poll() is None, daemon.log.read_text()
        errors.append((now_s, error_ns()))
        if abs(errors[-1][1]) >= LIMIT_NS:
            outside_s = now_s
        if now_s - began > PATIENCE_S:
            last = [error // US for _, error in errors[::50]]
            pytest.fail(f"not within {LIMIT_NS // US} us for {HELD_S} s; errors in us: {last}")
        time.sleep(0.02)
    held = [abs(error) / US for at_s, error in errors if at_s > outside_s]
    tracking = chronyd.tracking(host=daemon.command_socket)
    learned_ppm = tracking.frequency_reference_minus_local_ppm - before_ppm
    print(
        f"\nthe clock was within {LIMIT_NS // US} us from {outside_s - began:.1f} s on: median "
        f"{statistics.median(held):.1f}, at most {max(held):.1f} us in the last {HELD_S} s; "
        f"chronyd says that it has to run {learned_ppm:+.2f} ppm faster"
    )
    assert max(held) < LIMIT_NS / US
    assert learned_ppm == pytest.approx(20.0, abs=5.0)
    assert chronyd.sources(host=daemon.command_socket)[0].state == "*"
    client.wait_for(
        lambda values: "takes the samples" in values["chrony"]["0"]["says"],
        "the client has verified that its samples arrive",
    )
    assert time.monotonic() - began < 100


def test_while_chronyd_slews_the_servers_clock_utc_stays_within_the_clients_interval(
    rig: Rig, clock_keeper: ClockKeeper
) -> None:
    """chronyd finds the clock wrong by 400 us, and corrects that with 20 ppm.

    Until it has done so, the server promises no rate: the clock's is not that of UTC.
    """
    truth = VirtualClock(
        VirtualClockSettings.starting_now(frequency_ppb=frequency(adjtimex()) * 1e9)
    )
    slew_away(-400 * US)
    folder, broker = rig.new_folder("chronyd"), rig.broker()
    server = Server(
        rig.new_folder("server"),
        "mqtick-timeserver",
        *("--broker", broker.url, "--chronyd-host", f"{folder}/command.sock"),
        *("--chronyd-interval-s", "0.5"),
    )
    rig.on_close(server.stop)
    server.start()
    client = Program(
        rig.new_folder("client"),
        "mqtick-client",
        *("--broker", broker.url, "--name", "c1", "--fast", "--exchange-interval-s", "1"),
    )
    rig.on_close(client.stop)
    client.start()
    reference = f"refclock SOCK {folder}/truth.sock refid TRUE poll 0 filter 1 delay 1e-4"
    daemon = Chronyd(folder, [reference, "maxslewrate 20"], steers=True)
    clock_keeper.end_first(daemon.process.pid)
    rig.on_close(daemon.process.wait)
    looks, end_s = 0, time.monotonic() + 60
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as feed:
        while time.monotonic() < end_s:
            assert daemon.process.poll() is None, daemon.log.read_text()
            before = read_kernel_time(10)
            behind_ns = truth.at_monotonic_raw_ns(before.raw_ns) - before.realtime_ns
            with contextlib.suppress(OSError):  # it has not made its socket yet
                second, rest_ns = divmod(before.realtime_ns, 10**9)
                sample = (second, rest_ns // 1000, behind_ns / 1e9, 0, 0, 0, 0x534F434B)
                feed.sendto(SOCK_SAMPLE.pack(*sample), f"{folder}/truth.sock")
            with contextlib.suppress(NowError, StatusError):
                now = now_from(read_status(client.folder / "status.json"))
                after = read_kernel_time(10)
                if now.state != "unsynchronised":
                    looks += 1
                    assert now.earliest_ns <= truth.at_monotonic_raw_ns(after.raw_ns)
                    assert truth.at_monotonic_raw_ns(before.raw_ns) <= now.latest_ns
            time.sleep(0.1)
    values = server.status()
    print(
        f"\nUTC was inside in {looks} looks; the served clock "
        f"was taken anew {values['done'].get('clock-taken-anew', 0)} times"
    )
    assert looks > 200
    assert abs(behind_ns) < 50 * US, "the clock is right again"
    assert abs(values["lag_ns"]) <= 100 * US
    assert values["rate_change_ppb"], "the clock runs as fast as UTC again"


def slew_away(ns: int) -> None:
    """Move the clock by so much with 100 ppm, as its hardware might have done."""
    was = adjtimex()
    adjtimex(ADJ_FREQUENCY, freq=was.freq + (100 << 16) * (1 if ns > 0 else -1))
    try:
        time.sleep(abs(ns) / 100e-6 / 1e9)
    finally:
        adjtimex(ADJ_FREQUENCY, freq=was.freq)


@pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does")
def test_of_what_came_between_a_step_and_the_step_back_no_residence_is_stated(
    clock_keeper: ClockKeeper, tmp_path: Path
) -> None:
    """Both steps are over when the node looks: its clock reads as if there had been none."""
    with running(Mosquitto(tmp_path)) as broker:
        site = Site(tmp_path, broker)
        site.start()
        try:
            hearer, writer = Node(site.port, "mqtick/#"), Node(site.port)
            until_stated(lambda octets: relayed(hearer, writer, octets))
            assert site.process is not None
            time.sleep(2 * STEP_NS / 1e9)  # so that its stamp is later than the node's last look
            site.process.send_signal(signal.SIGSTOP)
            step(-STEP_NS)
            writer.say(TOPIC, payload(1000))
            step(STEP_NS)
            site.process.send_signal(signal.SIGCONT)
            assert hearer.hear()[1][-16:] == NOT_STATED
            until_stated(lambda octets: relayed(hearer, writer, octets))
        finally:
            site.stop()


def step(ns: int) -> None:
    """Step the clock by exactly so much; on return the kernel has told who watches for it."""
    seconds, rest_ns = divmod(ns, 1_000_000_000)
    adjtimex(ADJ_SETOFFSET | ADJ_NANO, time_s=seconds, time_us=rest_ns)


def test_the_clock_comes_back_even_if_the_test_is_killed(clock_keeper: ClockKeeper) -> None:
    keeper = Keeper()
    script = (
        "import os, signal, sys, time\n"
        f"sys.path.insert(0, {str(HERE.parent)!r})\n"
        "from bench.clock_keeper import ClockKeeper\n"
        "inner = ClockKeeper()\n"
        "time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + 20_000_000)\n"
        "print(inner.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    number = int(done.stdout)
    end = time.monotonic() + 10
    while is_running(number):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert abs(keeper.error_ns()) < 1_000_000
    assert done.returncode == -9
