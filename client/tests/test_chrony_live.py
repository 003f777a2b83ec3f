"""The SOCK path against the chronyd that is installed; see chronyd_rig.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
from chronyd_rig import ChronydRig, chronyds

from mqtick.client.chrony import (
    ChronySock,
    Layout,
    Outcome,
    Verify,
    layout_for,
)
from mqtick.client.chrony_lines import DELAYS_NS, refclock_lines, refid_for, socket_path
from mqtick.service import ChronyVersion, Leap, chronyd, why_not_synchronised

__all__ = ["chronyds"]  # a fixture

pytestmark = pytest.mark.needs("chronyd")

Rigs = Callable[[], ChronydRig]

MS = 1_000_000
US = 1_000


def start(rig: ChronydRig, *servers: int, more: str = "") -> None:
    lines = refclock_lines(chronyd.version(), servers or (0,), poll=-2, run_folder=str(rig.folder))
    rig.start(*(line + more for line in lines))


def sock_of(rig: ChronydRig, server: int = 0, layout: Layout | None = None) -> ChronySock:
    path = socket_path(server, str(rig.folder))
    return ChronySock(path, layout or layout_for(chronyd.version()))


def feed(
    rig: ChronydRig,
    sock: ChronySock,
    until: Callable[[], bool],
    *,
    offset_ns: int = 0,
    leap: int = 0,
    at_ns: int = 0,
    note: Callable[[Outcome, int], None] = lambda *_: None,
) -> None:
    """Send a sample of now (shifted by `at_ns`) each 20 ms until something is true."""

    def step() -> bool:
        outcome = sock.send(time.time_ns() + at_ns, offset_ns, leap)
        note(outcome, time.monotonic_ns())
        return until()

    rig.wait_until(step)


@pytest.mark.slow
def test_reach_moves_with_the_samples(chronyds: Rigs) -> None:
    rig = chronyds()
    start(rig)
    before = rig.source("MQT0")
    assert (before.mode, before.reach, before.last_rx_s) == ("#", 0, None)
    feed(rig, sock_of(rig), lambda: rig.source("MQT0").reach >= 0o17)
    after = rig.source("MQT0")
    assert after.last_rx_s is not None
    assert after.last_rx_s <= 1
    assert after.stratum == 1
    assert after.error_ns >= 1 * MS, "half of the delay is the error that is assumed"


@pytest.mark.slow
def test_chronyd_reports_the_offset_with_the_value_and_the_sign_that_was_sent(
    chronyds: Rigs,
) -> None:
    for offset_ns in (+3 * MS, -2 * MS):
        rig = chronyds()
        start(rig)
        feed(
            rig,
            sock_of(rig),
            lambda rig=rig: rig.tracking().leap is Leap.NORMAL,  # type: ignore[misc]
            offset_ns=offset_ns,
        )
        tracking = rig.tracking()
        # Positive: the reference is ahead, the local clock is slow.
        assert tracking.offset_reference_minus_local_ns == pytest.approx(offset_ns, abs=20 * US)
        assert tracking.name == "MQT0"
        assert tracking.stratum == 2


def test_chronyd_reports_the_same_sign_in_its_sources(chronyds: Rigs) -> None:
    rig = chronyds()
    start(rig, more=" noselect")  # chronyd does not correct for it, so it stays visible
    feed(rig, sock_of(rig), lambda: rig.source("MQT0").reach > 1, offset_ns=-5 * MS)
    source = rig.source("MQT0")
    assert source.adjusted_offset_reference_minus_local_ns == pytest.approx(-5 * MS, abs=20 * US)
    assert source.measured_offset_reference_minus_local_ns == pytest.approx(-5 * MS, abs=20 * US)


@pytest.mark.parametrize(
    ("leap", "said"), [(0, "Normal"), (1, "Insert second"), (2, "Delete second")]
)
def test_a_leap_second_arrives(chronyds: Rigs, leap: int, said: str) -> None:
    rig = chronyds()
    start(rig)

    # Not in tracking: chronyd shows a leap second there only on the last day of June and December
    # (reference.c, is_leap_second_day); what the source said stands in the last column here.
    def arrived() -> bool:
        sources = chronyd.query("selectdata", host=rig.command_socket).splitlines()
        return any(line.startswith("*,MQT0,") and line.endswith(f",{said}") for line in sources)

    feed(rig, sock_of(rig), arrived, leap=leap)


def test_a_clock_becomes_synchronised_and_its_root_distance_is_honest(chronyds: Rigs) -> None:
    rig = chronyds()
    start(rig)
    assert "has selected no source yet" in str(why_not_synchronised(rig.tracking()))
    feed(rig, sock_of(rig), lambda: why_not_synchronised(rig.tracking()) is None)
    assert rig.tracking().root_distance_ns >= 1 * MS, "at least half of the delay"


def test_a_crash_of_chronyd_leaves_a_socket_that_refuses_until_the_next_start(
    chronyds: Rigs,
) -> None:
    rig = chronyds()
    start(rig)
    sock = sock_of(rig)
    assert sock.send(time.time_ns(), 0) is Outcome.SENT
    rig.kill()
    assert sock.send(time.time_ns(), 0) is Outcome.REFUSED
    (rig.folder / "pid").unlink()
    rig.start()
    assert sock.send(time.time_ns(), 0) is Outcome.SENT


@pytest.mark.slow
def test_a_sample_of_the_wrong_size_is_dropped_silently_and_verify_says_so(
    chronyds: Rigs,
) -> None:
    rig = chronyds()
    start(rig, 0, 1)
    right = layout_for(chronyd.version())
    if right is not Layout.TIME64 or sys.maxsize < 2**32:
        pytest.skip("only a 64-bit chronyd refuses samples of 32 octets")
    wrong, good = sock_of(rig, 0, Layout.TIME32), sock_of(rig, 1)
    check_wrong, check_good = Verify(wrong, "MQT0"), Verify(good, "MQT1")

    def good_arrives() -> bool:
        outcome = wrong.send(time.time_ns(), 0)
        assert outcome is Outcome.SENT, "the sender sees nothing of it"
        check_wrong.note(outcome, time.monotonic_ns())
        return rig.source("MQT1").reach >= 0o17

    feed(rig, good, good_arrives, note=check_good.note)
    assert rig.source("MQT0").reach == 0
    assert check_good.check(rig.sources(), time.monotonic_ns()).state == "arriving"
    # Three seconds later it would be certain: the clock of Verify is the caller's.
    verdict = check_wrong.check(rig.sources(), time.monotonic_ns() + 3_000 * MS)
    assert verdict.state == "lost"
    assert "(32 octets are sent)" in verdict.sentence
    assert "reach is 0 (octal) and the last one was received never" in verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("at_ns", [+2_000 * MS, -5_000 * MS])
def test_a_sample_of_the_wrong_time_is_dropped_silently(chronyds: Rigs, at_ns: int) -> None:
    rig = chronyds()
    start(rig, 0, 1)
    wrong, good = sock_of(rig, 0), sock_of(rig, 1)

    def good_arrives() -> bool:
        assert wrong.send(time.time_ns() + at_ns, 0) is Outcome.SENT
        return rig.source("MQT1").reach >= 0o17

    feed(rig, good, good_arrives)
    assert rig.source("MQT0").reach == 0


def test_each_server_appears_in_chronyd_under_its_refid(chronyds: Rigs) -> None:
    rig = chronyds()
    servers = (0, 9, 10, 99, 100, 255)
    start(rig, *servers)
    assert {source.name for source in rig.sources()} == {
        refid_for(server, delay_ns) for server in servers for delay_ns in DELAYS_NS
    }


@pytest.mark.parametrize("version", [ChronyVersion(4, 3), ChronyVersion(4, 8)])
def test_generated_lines_pass_chronyds_own_check(chronyds: Rigs, version: ChronyVersion) -> None:
    rig = chronyds()
    lines = refclock_lines(version, range(256), poll=-6)
    check = rig.command("-p", "-f", str(rig.configure(*lines)))
    assert check.wait(10) == 0, rig.log
    assert rig.log.count("refclock SOCK") == 256 * len(DELAYS_NS)


def test_chronyds_own_check_finds_a_line_that_it_cannot_read(chronyds: Rigs) -> None:
    rig = chronyds()
    line = refclock_lines(ChronyVersion(4, 3), [0])[0]
    check = rig.command("-p", "-f", str(rig.configure(line + " asymmetry 0.5")))
    assert check.wait(10) == 1
    assert "refclock" in rig.log


@pytest.mark.slow
def test_without_filter_1_an_old_chrony_misses_most_polls(chronyds: Rigs) -> None:
    if chronyd.version() >= (4, 7):
        pytest.skip("from chrony 4.7 on one sample a poll is enough")
    rig = chronyds()
    folder = str(rig.folder)
    bare = refclock_lines(ChronyVersion(4, 7), [0], poll=-1, run_folder=folder)[0]
    filtered = refclock_lines(ChronyVersion(4, 3), [1], poll=-1, run_folder=folder)[0]
    rig.start(bare, filtered)
    socks = [sock_of(rig, 0), sock_of(rig, 1)]
    last_ns = 0

    def once_a_poll() -> bool:
        nonlocal last_ns
        now_ns = time.time_ns()
        if now_ns - last_ns > 450 * MS:
            last_ns = now_ns
            for sock in socks:
                sock.send(now_ns, 0)
        return rig.source("MQT1").reach >= 0o17

    rig.wait_until(once_a_poll)
    # It gathers four samples before it takes one: most polls bring nothing.
    assert rig.source("MQT0").reach.bit_count() <= 2
    assert rig.source("MQT1").reach.bit_count() >= 4
